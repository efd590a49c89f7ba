"""pFedMe: the Moreau envelope's constants (Proposition 1), and where Theorem 1's iterates end on quadratics."""

from __future__ import annotations

from ...errors import need


def envelope_curvature(a: float, lam: float) -> float:
    """The envelope of a/2 t² is λa/(λ + a)/2 w²; a may be negative where λ > −a."""
    need(lam + a > 0, f"the Moreau envelope of a function of curvature {a:g} needs λ > {-a:g}; got {lam:g}.")
    return lam * a / (lam + a)


def strong_convexity(mu: float, lam: float) -> float:
    """Proposition 1: μ_F = λμ/(λ + μ)."""
    return envelope_curvature(mu, lam)


def smoothness(lam: float) -> float:
    """Proposition 1: L_F = λ (for non-convex L-smooth f_i with λ ≥ 2L)."""
    return lam


def contraction(curvature: float, eta: float, beta: float = 1.0, R: int = 1) -> float:
    """How an error along a direction of F's curvature shrinks in a round: 1 − β(1 − (1 − η·curvature)^R)."""
    return 1 - beta * (1 - (1 - eta * curvature) ** R)


def delta2(gamma2: float, batch: int, nu: float, lam: float, mu: float) -> float:
    """Lemma 1 (a): δ² = 2/(λ + μ)² (γ_f²/|D| + ν) bounds E‖θ̃ − θ̂‖²."""
    return 2 / (lam + mu) ** 2 * (gamma2 / batch + nu)


def largest_eta(mu: float, lam: float, beta: float = 1.0, R: int = 1) -> float:
    """Theorem 1's largest step: η ≤ η̂₁/(βR) with η̂₁ = 1/(6 L_F (3 + 128 κ_F/β)), κ_F = L_F/μ_F."""
    kappa = smoothness(lam) / strong_convexity(mu, lam)
    return 1 / (6 * smoothness(lam) * (3 + 128 * kappa / beta)) / (beta * R)


def neighbourhood(lam: float, delta2: float, mu: float) -> float:
    """The last term of Theorem 1 (a), λ²δ²/μ_F: E F(w̄) − F* ends within a constant times this."""
    return lam**2 * delta2 / strong_convexity(mu, lam)


def floor(mu: float, lam: float, eta: float, clients: int, variance: float) -> float:
    """E F(w) − F* after many rounds (R = 1, β = 1) on f_i = μ/2 ‖θ − c_i‖² whose gradients have noise.

    `variance` is E‖θ̃ − θ̂‖², the real one where δ² is a bound; its mean over N clients drives
    w ← w − η∇F(w) + ηλ·noise, an autoregression whose stationary variance is η²λ²(variance/N)/(1 − (1 − ημ_F)²).
    """
    mu_F = strong_convexity(mu, lam)
    stationary = eta**2 * lam**2 * variance / clients / (1 - contraction(mu_F, eta) ** 2)
    return mu_F / 2 * stationary


def batch_variance(sample_variance: float, samples: int, batch: int) -> float:
    """The variance of the mean of `batch` of `samples` values drawn without replacement.

    `sample_variance` is that over n.
    """
    return sample_variance / batch * (samples - batch) / (samples - 1)
