"""Ising model on a public network: P(s) is proportional to exp(beta/2 s'Js)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from bayesprivmrf.chains.heat_bath import (
    BURN_IN,
    SWEEPS,
    ChainSchedule,
    Moves,
    Simulation,
    simulate,
    unit_coupling,
)
from bayesprivmrf.chains.heat_bath import Mixing as Mixing
from bayesprivmrf.checks import finite, require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.network.couplings import (
    Coupling,
    checked_nodes,
    read_adjacency,
    read_matrix,
    scaled,
)
from bayesprivmrf.network.outcomes import checked_spins, read_spins
from bayesprivmrf.network.pseudo_likelihood import PseudoLikelihood
from bayesprivmrf.privacy.external_field import ExternalField

# rounding error of a centered local field, relative to its degree times its largest size: a sum and a difference
_ROUNDINGS = 4 * float(np.finfo(float).eps)


@dataclass(frozen=True, kw_only=True, eq=False)
class IsingNetwork:
    r"""Ising model on one public network, in which each node has one outcome, -1 or +1.

    The outcomes have the distribution :math:`P(s) \propto \exp(\tfrac{\beta}{2} s^\top J s)`. The coupling matrix
    :math:`J` is public, and the inverse temperature :math:`\beta` is the strength of peer influence (Chakraborty,
    Chatterjee and Dalal 2024, equation 1). A node with the local field :math:`m_i = \sum_j J_{ij} s_j` is +1 with
    probability :math:`1 / (1 + e^{-2 \beta m_i})`. Negative couplings make neighbors differ.

    Without a field, +1 and -1 are equally likely if neighbors have no influence. If one outcome is much rarer,
    :math:`\beta` then measures this imbalance too, and even its sign may be wrong: see `ExternalField`.

    Parameters
    ----------
    nodes
        n distinct names, any hashable, in the order of the rows of `coupling`.
    coupling
        :math:`J`, shape (n, n): symmetric and finite, stored as read-only CSR without zeros. The diagonal is
        dropped with a warning, because it changes no probability.
    field
        Public external field: an `ExternalField`, its strength in nats, or None.

    Raises
    ------
    ArgumentError
        The field has the wrong type, or is out of range.
    ModelError
        The matrix is not square, real, finite and symmetric, or couples no nodes; or names repeat, are missing, or
        differ in number from the rows.

    Examples
    --------
    >>> path = IsingNetwork.from_graph([("ann", "bob"), ("bob", "cas")])
    >>> path.local_fields(path.spins({"ann": 1, "bob": 1, "cas": -1}))
    array([1., 0., 1.])
    """

    nodes: tuple[Hashable, ...]
    coupling: sparse.csr_array
    field: ExternalField | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "field", ExternalField.checked(self.field))
        nodes, coupling = read_matrix(self.coupling, self.nodes, "coupling")
        object.__setattr__(self, "coupling", coupling)
        object.__setattr__(self, "nodes", nodes)

    @classmethod
    def from_graph(
        cls,
        graph: Any,
        coupling: Coupling = "raw",
        *,
        nodes: Iterable[Hashable] | None = None,
        weight: str | None = "weight",
        mean_degree: float | None = None,
        field: ExternalField | float | None = None,
    ) -> Self:
        r"""Return the Ising model on an undirected graph.

        Parameters
        ----------
        graph
            A networkx graph; a pgmpy Markov network, of which only the structure is used; an adjacency matrix
            (NumPy, SciPy, a labeled DataFrame or DataArray); a data frame with two columns of nodes and perhaps one
            of weights; or pairs (node, node) or triples (node, node, weight). A repeated edge is one edge. The nodes
            of a data frame are the columns ``source`` and ``target``, or the two columns beside the weights.
        coupling
            ``"raw"``: :math:`J` is the adjacency matrix :math:`A`, with its weights. ``"mean-degree"``: :math:`A`
            divided by the mean degree. ``"degree-normalised"``: :math:`D^{-1/2} A D^{-1/2}`. Degrees are sums of
            absolute weights; negative weights stay negative.
        nodes
            Order of the nodes. Names that the graph lacks become nodes without neighbors. By default the order in
            which the graph lists them, or 0 to n - 1 for a matrix.
        weight
            Name of the weights: an edge attribute of a networkx graph, 1 where absent, or a column of a data frame.
            The third of three columns without names holds weights. ``None`` ignores weights, also those of triples
            and matrices.
        mean_degree
            Divisor for ``"mean-degree"`` instead of the graph's own mean degree.
        field
            Public external field, or None: ``ExternalField.from_share(0.38)`` if 38 % of outcomes are publicly
            known to be positive, or a number of nats. It must never be computed from the outcomes themselves.

        Raises
        ------
        ModelError
            The graph is directed or has no edge, a weight is not finite, no weights have the given name, or an edge
            is listed with several weights.

        Examples
        --------
        >>> IsingNetwork.from_graph([("ann", "bob"), ("bob", "cas")], "degree-normalised")
        IsingNetwork(3 nodes, 2 edges, no external field)
        """
        names, adjacency = read_adjacency(graph, nodes, weight)
        J = scaled(adjacency, coupling, mean_degree)
        return cls(nodes=names, coupling=J, field=ExternalField.checked(field))

    @classmethod
    def from_matrix(
        cls,
        J: Any,
        nodes: Iterable[Hashable] | None = None,
        field: ExternalField | float | None = None,
    ) -> Self:
        """Return the Ising model with a given coupling matrix.

        Parameters
        ----------
        J
            A NumPy array or a SciPy sparse matrix, whose rows and columns are the nodes in order; or a pandas
            DataFrame or an xarray DataArray whose labels are the nodes, with rows and columns in any order.
        nodes
            Order of the nodes. By default that of the row labels, or 0 to n - 1 if there are none.
        field
            Public external field, as in `from_graph`; none by default.

        Raises
        ------
        ArgumentError, ModelError
            The class raises the same errors.

        Examples
        --------
        >>> import pandas as pd
        >>> J = pd.DataFrame([[1.0, 0.0], [0.0, 1.0]], index=["ann", "bob"], columns=["bob", "ann"])
        >>> IsingNetwork.from_matrix(J).nodes
        ('ann', 'bob')
        """
        names, coupling = read_matrix(J, nodes, "J")
        return cls(nodes=names, coupling=coupling, field=ExternalField.checked(field))

    def subnetwork(self, nodes: Iterable[Hashable]) -> Self:
        r"""Return the Ising model on some of the nodes, for data in which the other nodes have no outcome.

        Choose nodes only if the choice is public (who was present, who was asked), or by a rule that uses no outcome.
        A release then has the guarantee of a release on the public network :math:`J_{AA}`. If it is sensitive who did
        not answer, give these nodes one of the two states instead, by a rule fixed beforehand.

        The model is an approximation: a node left out couples its neighbors with each other.

        Parameters
        ----------
        nodes
            Two names or more, two of them coupled. Order and couplings stay; degrees are not computed again.

        Raises
        ------
        ModelError
            A name is not a node or repeats, or no two of the nodes are coupled.

        Examples
        --------
        >>> path = IsingNetwork.from_graph([("ann", "bob"), ("bob", "cas")])
        >>> path.subnetwork(["bob", "ann"]).nodes
        ('ann', 'bob')
        """
        chosen = set(checked_nodes(nodes, None))
        known = chosen <= set(self.nodes)
        got = "some names that are not"
        require(
            known, "nodes", "be nodes of the network", got, "correct or drop them", error=ModelError
        )
        kept = [place for place, node in enumerate(self.nodes) if node in chosen]
        return type(self)(
            nodes=tuple(self.nodes[place] for place in kept),
            coupling=self.coupling[kept][:, kept],
            field=self.field,
        )

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        if self.field is None:
            field = "no external field"
        else:
            field = f"external field {self.field.strength:.4g}"
        return f"IsingNetwork({len(self.nodes)} nodes, {self.coupling.nnz // 2} edges, {field})"

    @cached_property
    def row_norms(self) -> np.ndarray:
        """Sums of absolute couplings, sum_j abs(J_ij), shape (n,): the largest possible local field of each node."""
        return np.asarray(abs(self.coupling).sum(axis=1)).ravel()

    @cached_property
    def unit_coupling(self) -> tuple[float, sparse.csr_array] | None:
        """J as a number times a matrix of integers -1, 0 and 1, or None if couplings differ in size."""
        return unit_coupling(self.coupling)

    @cached_property
    def components(self) -> np.ndarray:
        """Number of each node's connected component, from 0, int32 of shape (n,)."""
        return csgraph.connected_components(self.coupling, directed=False)[1]

    def spins(self, outcomes: Any, positive: Any = None, negative: Any = None) -> np.ndarray:
        """Return outcomes as an int8 array of -1 and +1, shape (n,), in the order of the nodes.

        Parameters
        ----------
        outcomes
            A mapping from node to state, a Series or DataArray indexed by node, or a list in the order of the nodes.
        positive
            State that means +1, by default the number 1. It is never inferred from the data; ``True`` is not ``1``.
        negative
            State that means -1, by default the number -1.

        Raises
        ------
        ArgumentError
            Only one state is declared, or both are the same.
        DataError
            A node has no outcome, or a name is not a node.
        UndeclaredStateError
            An outcome is missing, or is not one of the two states.
        """
        return read_spins(outcomes, self.nodes, positive, negative)

    def local_fields(self, spins: np.ndarray) -> np.ndarray:
        """Return the local fields, :math:`J s`, or :math:`J (s - c)` with an external field of center :math:`c`.

        The shape is (n,), or (k, n) for k configurations. Signs are those of sums without rounding errors.
        """
        # with one size of couplings sums are computed in integers; otherwise a sum that is close to its rounding
        # error is computed again without rounding
        s = checked_spins(spins, len(self))
        if self.unit_coupling is not None:
            size, signs = self.unit_coupling
            return self._centered(size * (signs @ s.T.astype(np.int32)).T)
        fields = np.ascontiguousarray((self.coupling @ s.T.astype(np.float64)).T)
        degrees = np.diff(self.coupling.indptr)
        doubtful = (np.abs(fields) <= 2 * np.finfo(float).eps * degrees * self.row_norms) & (
            degrees > 0
        )
        for place in zip(*np.nonzero(doubtful), strict=True):
            row = slice(*self.coupling.indptr[place[-1] : place[-1] + 2])
            fields[place] = math.fsum(
                self.coupling.data[row] * s[place[:-1]][self.coupling.indices[row]]
            )
        return self._centered(fields)

    def _centered(self, fields: np.ndarray) -> np.ndarray:
        """Local fields less the offsets of the external field; differences within rounding become zero."""
        if self.field is None or not self.field.center:
            return fields
        centered = fields - self.field.offsets(self.coupling)
        degrees = np.maximum(np.diff(self.coupling.indptr), 1)
        hidden = _ROUNDINGS * degrees * self.row_norms
        return np.where(np.abs(centered) <= hidden, 0.0, centered)

    def energy(self, spins: np.ndarray) -> Any:
        r"""Return the energy :math:`H(s) = s^\top J s`, so that :math:`P(s) \propto e^{\beta H(s) / 2}`.

        With an external field it is :math:`(s - c)^\top J (s - c)`, and :math:`P` has the additional factor
        :math:`e^{h \sum_i s_i}`. The result has shape (k,) for k configurations.
        """
        if self.field is None:
            center = 0.0
        else:
            center = self.field.center
        H = np.sum(self.local_fields(spins) * (spins - center), axis=-1)
        return float(H) if np.ndim(H) == 0 else H

    def pseudo_likelihood(self, spins: np.ndarray) -> PseudoLikelihood:
        """Return the pseudo-likelihood of one configuration as a function of beta."""
        if self.field is None:
            strength = 0.0
        else:
            strength = self.field.strength
        return PseudoLikelihood.from_fields(self.local_fields(spins), spins, strength)

    def log_pseudo_likelihood(self, beta: float, spins: np.ndarray) -> float:
        """Return the log pseudo-likelihood of one configuration, in nats."""
        return self.pseudo_likelihood(spins)(beta)

    def maximum_pseudo_likelihood(
        self, spins: np.ndarray, bounds: tuple[float, float] | None = None
    ) -> float:
        r"""Return the :math:`\beta` that maximizes the pseudo-likelihood of one configuration, without privacy.

        It is the root of :math:`\sum_i m_i (s_i - \tanh(\beta m_i + h)) = 0`: infinity if no outcome opposes its
        local field, minus infinity if none agrees with it, and NaN if all local fields are zero.

        Parameters
        ----------
        spins
            Shape (n,), as made by `spins`.
        bounds
            Smallest and largest beta; a root outside is moved to the nearer one. ``None`` for all real numbers.

        Raises
        ------
        ArgumentError
            The bounds are not two numbers in increasing order.
        """
        return self.pseudo_likelihood(spins).maximiser(bounds)

    def pseudo_likelihood_estimate(
        self,
        outcomes: Any,
        positive: Any = None,
        negative: Any = None,
        bounds: tuple[float, float] | None = None,
    ) -> float:
        """Return the `maximum_pseudo_likelihood` of outcomes in any form that `spins` accepts, without privacy."""
        return self.maximum_pseudo_likelihood(self.spins(outcomes, positive, negative), bounds)

    def simulate(
        self,
        beta: float,
        size: int = 1,
        rng: int | np.random.Generator | None = None,
        *,
        chains: int | None = None,
        sweeps: int = SWEEPS,
        burn_in: int = BURN_IN,
        moves: Moves = "heat-bath",
    ) -> Simulation:
        """Draw configurations by Markov chains, with a diagnostic of the chains' mixing.

        Parameters
        ----------
        beta
            Inverse temperature, of either sign.
        size
            Number of draws.
        rng
            A seed or a generator; ``None`` for fresh randomness. One seed gives one result for given settings.
        chains
            Number of independent chains that share the draws; by default one per draw, at least 4 and at most 32.
        sweeps
            Number of sweeps over all nodes between two draws of a chain.
        burn_in
            Number of sweeps before that.
        moves
            ``"heat-bath"``: a sweep draws each node's outcome given the others. ``"swendsen-wang"``: before each
            sweep, whole clusters of nodes that agree change sign. These moves mix dense groups with few edges between
            them, on which the heat bath is slow. A sweep takes three to ten times as long.

        Returns
        -------
        Simulation
            The draws, `spins` of shape (size, n), and their diagnostic `mixing`.

        Warns
        -----
        SamplingWarning
            Chains with ordered and disordered starts still differ (R-hat above 1.2), or are too short to tell.

        Raises
        ------
        ArgumentError
            `beta` is not finite, a number of draws, chains or sweeps is out of range, or `moves` is not known.

        Examples
        --------
        >>> pairs = IsingNetwork.from_graph([(2 * k, 2 * k + 1) for k in range(10)])
        >>> run = pairs.simulate(0.5, size=8, rng=1)
        >>> run.spins.shape, run.mixing.trusted
        ((8, 20), True)
        """
        result = self.run_chains(
            beta, size, rng, chains=chains, sweeps=sweeps, burn_in=burn_in, moves=moves
        )
        result.mixing.warn(moves)
        return result

    def run_chains(
        self, beta: float, size: int, rng: int | np.random.Generator | None, **settings: Any
    ) -> Simulation:
        """Return the result of `simulate`, with the same settings, but give no warning."""
        # the field is an added node, coupled to node i by h - beta o_i (o the offsets); flipping all n + 1 signs
        # changes no probability, so outcomes times that of the added node are distributed as if it were +1
        if self.field is None:
            return simulate(self.coupling, beta, size, rng, ChainSchedule(**settings))
        beta = finite("beta", beta)
        pull = (self.field.strength - beta * self.field.offsets(self.coupling))[:, None]
        added = sparse.csr_array(sparse.block_array([[beta * self.coupling, pull], [pull.T, None]]))
        run = simulate(added, 1.0, size, rng, ChainSchedule(**settings))
        return Simulation(spins=run.spins[:, :-1] * run.spins[:, -1:], mixing=run.mixing)

    def sample(
        self,
        beta: float,
        size: int = 1,
        rng: int | np.random.Generator | None = None,
        *,
        chains: int | None = None,
        sweeps: int = SWEEPS,
        burn_in: int = BURN_IN,
        moves: Moves = "heat-bath",
    ) -> np.ndarray:
        """Return only the draws of `simulate`: int8 of -1 and +1, shape (size, n), columns in node order."""
        return self.simulate(
            beta, size, rng, chains=chains, sweeps=sweeps, burn_in=burn_in, moves=moves
        ).spins
