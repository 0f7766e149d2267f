"""Old names of `analysis.shared.model_points`, until every study is converted."""

from analysis.shared.model_points import local_models as local_models
from analysis.shared.model_points import participants as participants
