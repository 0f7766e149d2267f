r"""The formulas of every rule as it is implemented, in LaTeX, for the page of methods in the documentation.

A method's formulas are those of its rules. A new rule gets a line in FORMULAS; a test fails until it has one.

Symbols, beside the settings of a rule under their own names: w^t the server's model, \hat w^t the point that is sent
(w^t unless a line says otherwise), w_k where client k ends, D_k = w_k - \hat w^t, p_k the weight of a participant,
D = sum_k p_k D_k, a_k the number of gradients in D_k, \eta the local rate, G = -sum_k p_k D_k / (\eta a_k),
S of N clients take part, g the gradient at w, \tilde g the one at w + e.
"""

from __future__ import annotations

from dataclasses import dataclass

from training.methods.adabest import Extrapolated, Fading
from training.methods.fedala import AdaptiveStart
from training.methods.fedcr import EncodingBound, OwnHead
from training.methods.fedfsa import LayerRadii
from training.methods.fedgf import GlobalAscent, Interpolated
from training.methods.fedgloss import ServerSharpness, TrueServerSharpness
from training.methods.fedgmt import DualOnly, EmaDistillation
from training.methods.fedlesam import OldGlobal
from training.methods.fedsmoo import SharedSAM
from training.methods.fedsol import ProximalSAM
from training.methods.fedspeed import GradientStep, QuasiGradient
from training.methods.fedvssam import Direction, MixedDescent, MixedSAM
from training.methods.fedwmsam import PersonalMomentum, Predicted
from training.methods.method import Method
from training.rules.base import Rule
from training.rules.corrections import (
    BodyOnly,
    ClientMomentum,
    ControlVariate,
    Dual,
    Lagrangian,
    OwnStatistics,
    Plain,
    Proximal,
)
from training.rules.loss_terms import Contrast, NotTrue
from training.rules.perturbations import ASAM, SAM, MetaStep, NoPerturbation, PreviousSAM
from training.rules.servers import Adagrad, Adam, LookAhead, Mean, Momentum, Normalised, SubtractDual


@dataclass(frozen=True)
class Formulas:
    """LaTeX of one rule, a formula in each line, by when it is computed; and what formulas cannot say.

    sent: what the server sends before local training.
    step: in every local step.
    client: after the client's local training.
    server: after the round.
    note: a sentence in Markdown.
    """

    sent: tuple[str, ...] = ()
    step: tuple[str, ...] = ()
    client: tuple[str, ...] = ()
    server: tuple[str, ...] = ()
    note: str = ""

    def __add__(self, other: Formulas) -> Formulas:
        return Formulas(
            (*self.sent, *other.sent),
            (*self.step, *other.step),
            (*self.client, *other.client),
            (*self.server, *other.server),
            " ".join(note for note in (self.note, other.note) if note),
        )


def collect_formulas(method: Method) -> Formulas:
    """Collect the formulas of all rules of a method, in the order in which they are used."""
    losses = (method.loss_term, method.local_loss)
    rules = [*(rule for rule in losses if rule is not None), method.perturbation, method.correction, method.server]
    found = Formulas()
    for rule in rules:
        found += FORMULAS[type(rule)]
    return found


UNIT = "with $\\operatorname{unit}(v) = v / \\lVert v \\rVert$ over all parameters together, and zero for zero."
WARMUP = "With `warmup` $= T_s$, $\\rho_t = \\rho_{start} + (\\rho - \\rho_{start})\\, t / T_s$ in round $t < T_s$."
SIGMA = r"\sigma \leftarrow \sigma - \frac{1}{N} \sum_{k} D_k"
CONTROL_CLIENT = r"c_k \leftarrow c_k - c - \frac{D_k}{\eta\, a_k}"
CONTROL_SERVER = r"c \leftarrow c + \frac{1}{N} \sum_{k} \left( c_k^{new} - c_k^{old} \right)"
SOFTMAX = (
    r"\operatorname{KL}\left( \operatorname{softmax}(z_{%s} / \tau) \,\Vert\, \operatorname{softmax}(z / \tau) \right)"
)

FORMULAS: dict[type[Rule], Formulas] = {
    # where the descent gradient is taken
    NoPerturbation: Formulas(step=(r"\tilde g = \nabla L(w)",)),
    SAM: Formulas(
        step=(r"e = \rho_t\, \frac{g}{\lVert g \rVert}", r"\tilde g = \nabla L(w + e)"),
        note=f"The norm runs over all parameters together. {WARMUP}",
    ),
    PreviousSAM: Formulas(
        step=(r"e = \rho_t\, \frac{\tilde g'}{\lVert \tilde g' \rVert}", r"\tilde g = \nabla L(w + e)"),
        note=f"$\\tilde g'$ is the descent gradient of the client's step before, zero in its first step. {WARMUP}",
    ),
    ASAM: Formulas(
        step=(
            r"T = \lvert w \rvert + \eta_{asam}",
            r"e = \rho\, \frac{T^2 \odot g}{\lVert T \odot g \rVert}",
            r"\tilde g = \nabla L(w + e)",
        ),
        note="$\\eta_{asam}$ is the setting `eta`. $T = 1$ outside tensors with 'weight' in their names, unless "
        '`scope = "all"`.',
    ),
    MetaStep: Formulas(
        step=(r"\tilde g = \nabla L_{B_2}\left( w - adapt \cdot \nabla L_{B_1}(w) \right)",),
        note="$B_1$ and $B_2$ are two mini-batches: a step takes both.",
    ),
    GradientStep: Formulas(
        step=(r"e = \rho\, g", r"\tilde g = \nabla L(w + e)"), note="`normalised = true` divides $e$ by its norm."
    ),
    SharedSAM: Formulas(
        step=(
            r"e = \rho_t \operatorname{unit}(g - \mu_k - s)",
            r"\mu_k \leftarrow \mu_k + e - s",
            r"\tilde g = \nabla L(w + e)",
        ),
        server=(r"s \leftarrow \rho_t \operatorname{unit}\left( \sum_{k} p_k (\mu_k - e_k) \right)",),
        note=f"$s$ is sent beside the model; $e_k$ is the client's last perturbation, {UNIT} "
        f'`exchange = "dual"` sends $\\mu_k$ alone. {WARMUP}',
    ),
    OldGlobal: Formulas(
        step=(r"e = \rho \operatorname{unit}(\hat w^{t_k} - \hat w^t)", r"\tilde g = \nabla L(w + e)"),
        note=f"$\\hat w^{{t_k}}$ is what the client was sent when it last took part, {UNIT} At first $e = 0$.",
    ),
    Interpolated: Formulas(
        step=(
            r"e = \rho_t\, \frac{g}{\lVert g \rVert}",
            r"\tilde g = \nabla L\left( c\, w_g + (1 - c)(w + e) \right)",
        ),
        note=WARMUP,
    ),
    Predicted: Formulas(
        step=(
            r"G_k = \bar G + \frac{a}{1 - a} (c - c_k)",
            r"e = sign \cdot \rho \operatorname{unit}(\hat w^t + b\, G_k - w)",
            r"\tilde g = \nabla L(w + e)",
        ),
        note=f"$b$ is the number of local steps taken so far, {UNIT}",
    ),
    LayerRadii: Formulas(
        step=(
            r"e_j = r_j\, \frac{g_j}{\lVert g \rVert}",
            r"r_j = \rho_{larger} \text{ for the chosen tensors } j,\ \rho \text{ for the others}",
            r"\tilde g = \nabla L(w + e)",
        ),
        client=(r"m_j = \lVert w_{k,j} - \hat w^t_j \rVert^2",),
        note="The `layers` tensors with the largest $m_j$, among the weights of convolutions and linear layers, are "
        "chosen for the client's next round; at first none is. `measure` and `select` change $m_j$ and the choice.",
    ),
    MixedSAM: Formulas(
        step=(r"e = \rho_t \operatorname{unit}\left( (1 - a)\, d + a\, g \right)", r"\tilde g = \nabla L(w + e)"),
        note=f"$d$ is the server's direction, {UNIT} `lf = false` climbs along $g$. {WARMUP}",
    ),
    ProximalSAM: Formulas(
        step=(
            rf"L_p(w) = {SOFTMAX % 'sent'}",
            r"e = \rho \operatorname{unit}\left( \nabla L_p(w) \right)",
            r"\tilde g = \nabla L(w + e)",
        ),
        note="$z$ are logits at $w$, $z_{sent}$ at $\\hat w^t$. `proximal` names other $L_p$; `combine` says where "
        'both gradients are taken; `radius = "adaptive"` scales $e$ in each layer by '
        "$\\lvert w - \\hat w^t \\rvert / \\lVert w - \\hat w^t \\rVert$; `part` perturbs the head or the body alone. "
        "`alpha` is the strength of the dual, if that is $L_p$; `beta` weighs $\\nabla L_p$ where it is added.",
    ),
    # what is added to the descent gradient
    Plain: Formulas(step=(r"u = \tilde g",)),
    Proximal: Formulas(step=(r"u = \tilde g + \mu\, (w - \hat w^t)",)),
    ControlVariate: Formulas(step=(r"u = \tilde g - c_k + c",), client=(CONTROL_CLIENT,), server=(CONTROL_SERVER,)),
    ClientMomentum: Formulas(step=(r"u = a\, \tilde g + (1 - a)\, \bar G",), server=(r"\bar G \leftarrow G",)),
    BodyOnly: Formulas(step=(r"u = \tilde g",), note="The head (the last layer) stays at its random start."),
    Dual: Formulas(
        step=(r"u = \tilde g - l_k + \alpha\, (w - \hat w^t)",),
        client=(r"l_k \leftarrow l_k - \alpha\, D_k",),
        server=(SIGMA,),
        note="$\\sigma$ is the mean of all clients' $l_k / \\alpha$.",
    ),
    Lagrangian: Formulas(
        step=(r"u = \tilde g - l_k + \frac{1}{\beta} (w - \hat w^t)",),
        client=(r"l_k \leftarrow l_k - \frac{1}{\beta} D_k",),
        server=(SIGMA,),
        note="$\\sigma$ is the mean of all clients' $\\beta\\, l_k$. `beta = inf`: no duals.",
    ),
    QuasiGradient: Formulas(
        step=(r"u = (1 - a)\, g + a\, \tilde g - l_k + \frac{1}{lam} (w - \hat w^t)",),
        client=(r"l_k \leftarrow l_k - \frac{1}{lam} D_k",),
        server=(r"\sigma \leftarrow lam \sum_{k} p_k\, l_k",),
        note='`duals = "all"`: $\\sigma$ is the mean over all clients, as FedDyn has it.',
    ),
    DualOnly: Formulas(
        step=(r"u = \tilde g - l_k",),
        client=(r"l_k \leftarrow l_k - \frac{1}{\beta} D_k",),
        server=(r"\sigma \leftarrow \beta \sum_{k} p_k\, l_k",),
        note='`duals = "all"`: $\\sigma$ is the mean over all clients, as FedDyn has it.',
    ),
    Fading: Formulas(
        step=(r"u = \tilde g - \mu\, h_k",),
        client=(r"h_k \leftarrow \frac{h_k}{t - t_k} + \hat w^t - w_k",),
        note="$t_k$ is the round in which the client last took part.",
    ),
    AdaptiveStart: Formulas(
        sent=(
            r"q = M - rate \cdot \nabla L(w_{k,0}) \odot (\hat w^t - w_k)",
            r"M \leftarrow \operatorname{clip}(q, 0, 1)",
            r"w_{k,0} = w_k + (\hat w^t - w_k) \odot M",
        ),
        step=(r"u = \tilde g",),
        note="Only the last `tensors` tensors are mixed, on a `share` of the client's data; $w_k$ is where the client "
        "ended when it last took part. The first time until the losses of ten passes spread less than `threshold`, at "
        "most 50 passes; later one pass.",
    ),
    OwnHead: Formulas(
        step=(r"u = \tilde g",), note="The head never leaves its client; it starts where the client's last round ended."
    ),
    OwnStatistics: Formulas(
        step=(r"u = \tilde g",),
        note="Statistics of BatchNorm stay with the client (those with `names` in theirs); the rest is averaged.",
    ),
    MixedDescent: Formulas(step=(r"u = (1 - a)\, d + a\, \tilde g",), note="`lu = false`: $u = \\tilde g$."),
    PersonalMomentum: Formulas(
        step=(r"u = a\, \tilde g + (1 - a)\, G_k",),
        client=(CONTROL_CLIENT,),
        server=(
            CONTROL_SERVER,
            r"q = \operatorname{clip}\left( \sum_{k} p_k (1 + \cos(D_k, \bar G)), 0.1, 0.9 \right)",
            r"a \leftarrow (1 - pace)\, a + pace \cdot q",
            r"\bar G \leftarrow G",
        ),
    ),
    # how the server moves
    Mean: Formulas(server=(r"w^{t+1} = w^t + \eta_g\, D",)),
    Momentum: Formulas(
        server=(r"m \leftarrow \beta\, m + D", r"w^{t+1} = w^t + \eta_g\, m"),
        note="`damped = true`: $m \\leftarrow \\beta\\, m + (1 - \\beta)\\, D$.",
    ),
    Adam: Formulas(
        server=(
            r"m \leftarrow b_1\, m + (1 - b_1)\, D",
            r"v \leftarrow b_2\, v + (1 - b_2)\, D^2",
            r"w^{t+1} = w^t + \eta_g\, \frac{m}{\sqrt{v} + \tau}",
        ),
        note="$v$ starts at $\\tau^2$; nothing is corrected for bias.",
    ),
    Adagrad: Formulas(
        server=(r"v \leftarrow v + D^2", r"w^{t+1} = w^t + \eta_g\, \frac{D}{\sqrt{v} + \tau}"),
        note="$v$ starts at $\\tau^2$.",
    ),
    Normalised: Formulas(server=(r"w^{t+1} = w^t + \left( \sum_{k} p_k\, a_k \right) \sum_{k} p_k\, \frac{D_k}{a_k}",)),
    SubtractDual: Formulas(server=(r"w^{t+1} = \sum_{k} p_k\, w_k - \sigma",)),
    LookAhead: Formulas(
        sent=(r"\hat w^t = w^t + lam \cdot m",), server=(r"m \leftarrow lam \cdot m + D", r"w^{t+1} = w^t + m")
    ),
    Extrapolated: Formulas(
        server=(
            r"\theta^t = \sum_{k} p_k\, w_k",
            r"w^{t+1} = \theta^t + \beta\, (\theta^t - \theta^{t-1})",
        )
    ),
    GlobalAscent: Formulas(
        server=(
            r"w^{t+1} = w^t + \eta_g\, D",
            r"w_g = w^{t+1} + \rho_g \operatorname{unit}(w^t - w^{t+1})",
        ),
        note="$w_g$ and $c$ are sent beside the model. $c$ is the share of the last `window` rounds in which the mean "
        "of $\\lVert D_k \\rVert$ exceeded `threshold`; zero in the first round.",
    ),
    ServerSharpness: Formulas(
        sent=(r"\hat w^t = w^t - \rho_s \operatorname{unit}(D^{t-1})",),
        server=(
            r"\sigma \leftarrow \sigma - \frac{S}{N} (\hat w^t - w^t)",
            r"w^{t+1} = w^t + \eta_s\, D - \sigma",
        ),
        note="Both lines for $\\sigma$ together subtract $\\frac{1}{N} \\sum_k (w_k - w^t)$, as the paper does. "
        '`dual_from = "sent"` leaves the second line out; `"code"` also divides the first by $S$.',
    ),
    TrueServerSharpness: Formulas(
        sent=(r"\hat w^t = w^t - \rho_s \operatorname{unit}(D')",),
        server=(
            r"\sigma \leftarrow \sigma - \frac{S}{N} (\hat w^t - w^t)",
            r"w^{t+1} = w^t + \eta_s\, D - \sigma",
        ),
        note="$D'$ comes from a first exchange in the same round: the cohort trains from $w^t$ before it is sent "
        "$\\hat w^t$. `dual_from` as in FedGloSS.",
    ),
    Direction: Formulas(
        server=(
            r"d \leftarrow (1 - \gamma)\, d + \gamma\, G",
            r"w^{t+1} = w^t - \eta_g\, \eta \left( \sum_{k} p_k\, a_k \right) d",
        ),
        note="$d$ is sent beside the model. `gu = false`: $\\gamma = 1$.",
    ),
    # what is added to the local loss, or replaces it
    NotTrue: Formulas(
        step=(rf"L = \operatorname{{CE}} + \beta\, \tau^2 {SOFTMAX % 'sent'}",),
        note="The softmaxes leave out the label's class; $z_{sent}$ are logits at $\\hat w^t$.",
    ),
    Contrast: Formulas(
        step=(
            r"L = \operatorname{CE} - \mu \log \frac{e^{\cos(f, f_{sent}) / \tau}}"
            r"{e^{\cos(f, f_{sent}) / \tau} + e^{\cos(f, f_{prev}) / \tau}}",
        ),
        note="$f$ is what enters the classifier, at $w$, at $\\hat w^t$ and at the client's previous model.",
    ),
    EmaDistillation: Formulas(
        sent=(r"\bar w^t = ema \cdot \bar w^{t-1} + (1 - ema)\, w^t",),
        step=(rf"L = \operatorname{{CE}} + \gamma\, \tau^2 {SOFTMAX % 'ema'}",),
        note="$z_{ema}$ are logits at $\\bar w^t$, which is sent beside the model.",
    ),
    EncodingBound: Formulas(
        step=(
            r"L = \frac{1}{samples} \sum_{i} \operatorname{CE}\left( h(\mu + \sigma \odot \epsilon_i), y \right)"
            r" + \beta \operatorname{KL}\left( \mathcal{N}(\mu, \sigma) \,\Vert\, \mathcal{N}(m_y, s_y) \right)",
        ),
        server=(
            r"s_y^{-2} \leftarrow \sum_{k} s_{k,y}^{-2}",
            r"m_y \leftarrow s_y^2 \sum_{k} s_{k,y}^{-2}\, m_{k,y}",
        ),
        note="The network without its classifier encodes an image as $\\mu$ and $\\sigma$, of `dim` numbers each; $h$ "
        "is the client's own head. $m_{k,y}, s_{k,y}$: a participant's mean encoding of class $y$; at first "
        "$\\mathcal{N}(0, 1)$. "
        '`prior = "standard"` keeps that; `direction` turns the divergence around.',
    ),
}
