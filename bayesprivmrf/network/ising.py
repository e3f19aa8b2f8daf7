"""An Ising model on a network that everybody may know: P(s) proportional to exp(beta/2 s'Js)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from bayesprivmrf.chains.heat_bath import Moves, Simulation, simulate, unit_coupling
from bayesprivmrf.chains.mixing import Mixing as Mixing
from bayesprivmrf.checks import finite
from bayesprivmrf.errors import ModelError
from bayesprivmrf.network.couplings import Coupling, checked_nodes, read_adjacency, read_matrix, scaled
from bayesprivmrf.network.outcomes import checked_spins, read_spins
from bayesprivmrf.network.pseudo_likelihood import PseudoLikelihood
from bayesprivmrf.privacy.external_field import ExternalField


@dataclass(frozen=True, kw_only=True, eq=False)
class IsingNetwork:
    """One network whose nodes each have one outcome of two kinds, -1 or +1.

    The outcomes s have a distribution P(s) proportional to exp(beta/2 s'Js) for a coupling matrix J that is public
    and an inverse temperature beta, the strength of peer influence (Chakraborty, Chatterjee and Dalal 2024,
    equation 1). A node whose neighbors pull with the local field m_i = sum_j J_ij s_j is +1 with probability
    1 / (1 + exp(-2 beta m_i)). Negative couplings push neighbors apart.

    Without an external field, +1 and -1 are equally likely where neighbors have no influence. Where one of them is
    much rarer, beta then measures the imbalance as well as the influence, and its sign can depend on how the
    couplings are scaled. A public share of positive outcomes gives a field: see `ExternalField`.

    Parameters
    ----------
    nodes
        n distinct names, any hashable, in the order of the rows of `coupling`.
    coupling
        J, shape (n, n): symmetric and finite, kept as read-only CSR with sorted indices and without zeros. A
        diagonal is dropped with a warning, for it changes no probability.
    field
        Public external field: an `ExternalField`, its strength in nats, or None.

    Raises
    ------
    ArgumentError
        The field has another type, or is out of range.
    ModelError
        The matrix is not square, real, finite and symmetric, or couples no two nodes; names repeat, are missing,
        or are not one a row.

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
        """Return the model on an undirected graph.

        Parameters
        ----------
        graph
            A networkx graph; a pgmpy Markov network, of which only the structure is used; an adjacency matrix of
            NumPy or SciPy, or a DataFrame or DataArray whose rows and columns are labeled by nodes; a data frame
            with two columns of nodes and, if there is a third, of weights; or pairs (node, node) or triples
            (node, node, weight). An edge given several times is one edge.
        coupling
            ``"raw"``: J is the adjacency matrix A, with its weights. ``"mean-degree"``: A over the mean degree, as
            A/(np) for Erdős-Rényi graphs. ``"degree-normalised"``: D^-1/2 A D^-1/2. Degrees are sums of absolute
            weights; negative weights stay negative.
        nodes
            The order of the nodes; names that the graph lacks are nodes without a neighbour. By default the
            order in which the graph names them, or 0 to n - 1 for a matrix.
        weight
            The edge attribute of a networkx graph that holds weights, 1 where an edge has none; ``None`` to
            use no weights.
        mean_degree
            A known divisor for ``"mean-degree"``, such as n p, in place of the graph's own.
        field
            Public external field, or None: ``ExternalField.from_share(0.38)`` where 38 % of outcomes are known to
            be positive, or a number of nats. Never computed from the outcomes themselves.

        Raises
        ------
        ModelError
            The graph is directed or has no edge, a weight is not finite, a pair comes with several weights.
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
        """Return the model with a given coupling matrix; errors are the class's.

        Parameters
        ----------
        J
            A NumPy array or a SciPy sparse matrix, whose rows and columns are the nodes in order; or a pandas
            DataFrame or an xarray DataArray whose labels are the nodes, with rows and columns in any order.
        nodes
            The order of the nodes. By default that of the rows' labels, or 0 to n - 1 where there are none.
        field
            The public external field, as in `from_graph`; none by default.

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
        r"""Return the model on some of the nodes alone: for outcomes that others do not have.

        The fact that a node has an outcome can be as sensitive as the outcome, so no mechanism infers it from the
        data. Name nodes here only if their names are public (who was present, who was asked), or by a rule that uses
        no outcome. Then the guarantee is that of a release on the public network :math:`J_{AA}`, with its own
        constants. Where missing answers are sensitive, give these nodes one of the two states instead, by a rule
        that is fixed beforehand.

        The model is an approximation: if the whole network's outcomes follow the Ising model, those of some nodes
        follow it with the other nodes summed out, which couples the neighbors of each node left out.

        Parameters
        ----------
        nodes
            Names of at least two nodes, two of them coupled; they keep their order, their couplings and the
            field. Degrees are not counted again: for that, make the network from the graph of these nodes.

        Raises
        ------
        ModelError
            A name is no node, or repeats, or no two of the nodes are coupled.

        Examples
        --------
        >>> path = IsingNetwork.from_graph([("ann", "bob"), ("bob", "cas")])
        >>> path.subnetwork(["bob", "ann"]).nodes
        ('ann', 'bob')
        """
        chosen = set(checked_nodes(nodes, None))
        if not chosen <= set(self.nodes):
            raise ModelError("`nodes` must be nodes of the network, but some names are none.")
        kept = [place for place, node in enumerate(self.nodes) if node in chosen]
        return type(self)(
            nodes=tuple(self.nodes[place] for place in kept),
            coupling=self.coupling[kept][:, kept],
            field=self.field,
        )

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        field = "no external field" if self.field is None else f"external field {self.field.strength:.4g}"
        return f"IsingNetwork({len(self.nodes)} nodes, {self.coupling.nnz // 2} edges, {field})"

    @cached_property
    def row_norms(self) -> np.ndarray:
        """Sums of absolute couplings, sum_j abs(J_ij), shape (n,): how far the others can pull node i."""
        return np.asarray(abs(self.coupling).sum(axis=1)).ravel()

    @cached_property
    def unit_coupling(self) -> tuple[float, sparse.csr_array] | None:
        """J as a number times a matrix of integers -1, 0, 1, where it is one."""
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
            A mapping from node to state, a pandas Series or DataArray indexed by node, or an array, list or other
            series in the order of the nodes.
        positive, negative
            The two states, +1 and -1; by default the numbers 1 and -1. The states are declared, not read off the
            data; ``True`` is not ``1``.

        Raises
        ------
        ArgumentError
            One state alone is declared, or both are the same.
        DataError
            A node has no outcome, or a name is no node.
        UndeclaredStateError
            An outcome is missing or in neither state.
        """
        return read_spins(outcomes, self.nodes, positive, negative)

    def local_fields(self, spins: np.ndarray) -> np.ndarray:
        """Return m = J s, shape (n,), or (k, n) for k configurations; J (s - c) with a field of center c.

        Entries are zero where the sum of the couplings' doubles is, and have the right sign everywhere: whether a
        pseudo-likelihood has a maximum hangs on the signs. With one size of coupling the sum is in integers;
        elsewhere a sum that cancels to about its rounding error is done again without any.
        """
        s = checked_spins(spins, len(self))
        if self.unit_coupling is not None:
            size, signs = self.unit_coupling
            return self._centered(size * (signs @ s.T.astype(np.int32)).T)
        fields = np.ascontiguousarray((self.coupling @ s.T.astype(np.float64)).T)
        degrees = np.diff(self.coupling.indptr)
        doubtful = (np.abs(fields) <= 2 * np.finfo(float).eps * degrees * self.row_norms) & (degrees > 0)
        for place in zip(*np.nonzero(doubtful), strict=True):
            row = slice(*self.coupling.indptr[place[-1] : place[-1] + 2])
            fields[place] = math.fsum(self.coupling.data[row] * s[place[:-1]][self.coupling.indices[row]])
        return self._centered(fields)

    def _centered(self, fields: np.ndarray) -> np.ndarray:
        """Subtract the field's offsets; a sum that cancels up to rounding is set to zero."""
        if self.field is None or not self.field.center:
            return fields
        centered = fields - self.field.offsets(self.coupling)
        hidden = 4 * np.finfo(float).eps * np.maximum(np.diff(self.coupling.indptr), 1) * self.row_norms
        return np.where(np.abs(centered) <= hidden, 0.0, centered)

    def energy(self, spins: np.ndarray) -> Any:
        """Return H(s) = s'Js = sum_i m_i s_i, so that P(s) is proportional to exp(beta H(s) / 2).

        With a field it is (s - c)'J(s - c), and P has the factor exp(h sum_i s_i). Shape (k,) for k configurations.
        """
        center = 0.0 if self.field is None else self.field.center
        H = np.sum(self.local_fields(spins) * (spins - center), axis=-1)
        return float(H) if np.ndim(H) == 0 else H

    def pseudo_likelihood(self, spins: np.ndarray) -> PseudoLikelihood:
        """Return the pseudo-likelihood of one configuration as a function of beta."""
        strength = 0.0 if self.field is None else self.field.strength
        return PseudoLikelihood.from_fields(self.local_fields(spins), spins, strength)

    def log_pseudo_likelihood(self, beta: float, spins: np.ndarray) -> float:
        """Return sum_i log expit(2 (beta m_i + h) s_i), in nats, for one configuration and a finite beta."""
        return self.pseudo_likelihood(spins)(beta)

    def maximum_pseudo_likelihood(
        self, spins: np.ndarray, bounds: tuple[float, float] | None = None
    ) -> float:
        """Return the beta that maximizes the pseudo-likelihood of one configuration.

        The root of sum_i m_i (s_i - tanh(beta m_i + h)) = 0, negative where outcomes go against their neighbors' pull
        more than with it. There is no finite root where no outcome goes against its neighbors' pull (the answer is
        infinity), where none goes with it (minus infinity), or where no neighbor pulls at all (NaN).
        Computed from the outcomes without any noise: it carries no guarantee.

        Parameters
        ----------
        spins
            Shape (n,), as made by `spins`.
        bounds
            Lowest and highest beta; a root outside is moved to the nearer one. ``None`` for the whole line.

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
        """Return the `maximum_pseudo_likelihood` of outcomes in any form that `spins` takes: no guarantee.

        Errors are those of `spins` and `maximum_pseudo_likelihood`.
        """
        return self.maximum_pseudo_likelihood(self.spins(outcomes, positive, negative), bounds)

    def simulate(
        self,
        beta: float,
        size: int = 1,
        rng: int | np.random.Generator | None = None,
        *,
        chains: int | None = None,
        sweeps: int = 30,
        burn_in: int = 300,
        moves: Moves = "heat-bath",
    ) -> Simulation:
        """Draw configurations by Markov chains, with a diagnostic of how well these mixed.

        Parameters
        ----------
        beta
            Inverse temperature, of either sign.
        size
            Number of draws.
        rng
            A seed or a generator; ``None`` for fresh randomness. One seed gives one result for given `chains`,
            `sweeps`, `burn_in` and `moves`.
        chains
            Independent chains, among which the draws are shared; by default one for each draw, at least 4
            and at most 32. With one for each draw, draws are independent. Time grows less than in proportion.
        sweeps
            Sweeps over all nodes from one draw of a chain to its next.
        burn_in
            Sweeps before the first of those.
        moves
            ``"heat-bath"``: a sweep draws each node's outcome given the others. ``"swendsen-wang"``: before each
            sweep clusters of nodes that agree change sign as a whole, which mixes networks of blocs with few edges
            between them, where the heat bath alone does not. Exact for all signs of `beta` and J. A sweep takes
            about three times as long on a sparse network, ten times on a dense one.

        Returns a `Simulation`: `spins` of shape (size, n) and `mixing`.

        Warns
        -----
        SamplingWarning
            Chains that started ordered and disordered differ still (R-hat above 1.2), or were too short to tell.

        Raises
        ------
        ArgumentError
            `beta` is not finite, a count is not a whole number in its range, or `moves` is not known.
        """
        result = self.run_chains(beta, size, rng, chains=chains, sweeps=sweeps, burn_in=burn_in, moves=moves)
        result.mixing.warn(moves)
        return result

    def run_chains(
        self, beta: float, size: int, rng: int | np.random.Generator | None, **settings: Any
    ) -> Simulation:
        """Return the result of `simulate`, with the same settings, without its warning.

        A field is represented by one more node, always +1, coupled to node i by h - beta o_i, where o are the
        offsets. That node may change its sign as well: the joint distribution is unchanged when all n + 1 nodes
        change sign. So each outcome times that of the added node has the distribution given that the latter is +1.
        """
        if self.field is None:
            return simulate(self.coupling, beta, size, rng, **settings)
        beta = finite("beta", beta)
        pull = (self.field.strength - beta * self.field.offsets(self.coupling))[:, None]
        added = sparse.csr_array(sparse.block_array([[beta * self.coupling, pull], [pull.T, None]]))
        run = simulate(added, 1.0, size, rng, **settings)
        return Simulation(spins=run.spins[:, :-1] * run.spins[:, -1:], mixing=run.mixing)

    def sample(
        self,
        beta: float,
        size: int = 1,
        rng: int | np.random.Generator | None = None,
        *,
        chains: int | None = None,
        sweeps: int = 30,
        burn_in: int = 300,
        moves: Moves = "heat-bath",
    ) -> np.ndarray:
        """Return the draws of `simulate` alone: int8 of -1 and +1, shape (size, n), columns in node order."""
        run = self.simulate(beta, size, rng, chains=chains, sweeps=sweeps, burn_in=burn_in, moves=moves)
        return run.spins
