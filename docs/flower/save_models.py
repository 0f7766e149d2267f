"""Let a Flower strategy save every model of a run, in files that `landscape adopt` reads."""

from pathlib import Path

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy
from safetensors.torch import save_file


def save_models(strategy: Strategy, folder: Path) -> Strategy:
    """Make a strategy write global_ROUND.safetensors and client_CLIENT_ROUND.safetensors into a folder.

    Clients tell their numbers: "partition-id" among the metrics that they return.
    """
    folder.mkdir(parents=True, exist_ok=True)
    configure, aggregate = strategy.configure_train, strategy.aggregate_train

    def save(name: str, arrays: ArrayRecord) -> None:
        state = {key: tensor.contiguous() for key, tensor in arrays.to_torch_state_dict().items()}
        save_file(state, folder / f"{name}.safetensors")

    def configure_train(server_round, arrays, config, grid):
        if server_round == 1:
            save("global_0", arrays)
        return configure(server_round, arrays, config, grid)

    def aggregate_train(server_round, replies):
        replies = [reply for reply in replies if reply.has_content()]
        for reply in replies:
            (arrays,), (metrics,) = reply.content.array_records.values(), reply.content.metric_records.values()
            save(f"client_{int(metrics['partition-id'])}_{server_round}", arrays)
        arrays, metrics = aggregate(server_round, replies)
        if arrays is not None:
            save(f"global_{server_round}", arrays)
        return arrays, metrics

    strategy.configure_train, strategy.aggregate_train = configure_train, aggregate_train
    return strategy
