"""What to cite for what was run."""

from __future__ import annotations

from typing import Any

__all__ = ["citation"]

_ENTRIES = {
    "bayesprivmrf": """@software{bayesprivmrf,
  title = {bayesprivmrf: Markov random fields from sensitive data},
  author = {{The bayesprivmrf developers}},
  version = {VERSION},
  year = {2026},
}""",
    "opendp": """@article{hay2020opendp,
  title = {A Programming Framework for {OpenDP}},
  author = {Hay, Michael and Gaboardi, Marco and Vadhan, Salil},
  journal = {6th Workshop on the Theory and Practice of Differential Privacy},
  year = {2020},
}""",
    "laplace": """@inproceedings{dwork2006calibrating,
  title = {Calibrating Noise to Sensitivity in Private Data Analysis},
  author = {Dwork, Cynthia and McSherry, Frank and Nissim, Kobbi and Smith, Adam},
  booktitle = {Theory of Cryptography Conference},
  pages = {265--284},
  year = {2006},
}""",
    "geometric": """@inproceedings{ghosh2009universally,
  title = {Universally Utility-Maximizing Privacy Mechanisms},
  author = {Ghosh, Arpita and Roughgarden, Tim and Sundararajan, Mukund},
  booktitle = {Proceedings of the 41st ACM Symposium on Theory of Computing},
  pages = {351--360},
  year = {2009},
}""",
    "gaussian": """@inproceedings{canonne2020discrete,
  title = {The Discrete {Gaussian} for Differential Privacy},
  author = {Canonne, Cl{\\'e}ment L. and Kamath, Gautam and Steinke, Thomas},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {33},
  year = {2020},
}""",
    "zcdp": """@inproceedings{bun2016concentrated,
  title = {Concentrated Differential Privacy: Simplifications, Extensions, and Lower Bounds},
  author = {Bun, Mark and Steinke, Thomas},
  booktitle = {Theory of Cryptography Conference},
  pages = {635--658},
  year = {2016},
}""",
    "objective": """@inproceedings{kifer2012private,
  title = {Private Convex Empirical Risk Minimization and High-dimensional Regression},
  author = {Kifer, Daniel and Smith, Adam and Thakurta, Abhradeep},
  booktitle = {Proceedings of the 25th Annual Conference on Learning Theory},
  volume = {23},
  year = {2012},
}""",
    "prising": """@inproceedings{chakraborty2024prising,
  title = {{PrIsing}: Privacy-Preserving Peer Effect Estimation via {Ising} Model},
  author = {Chakraborty, Abhinav and Chatterjee, Anirban and Dalal, Abhinandan},
  booktitle = {Proceedings of the 27th International Conference on Artificial Intelligence and Statistics},
  volume = {238},
  pages = {2692--2700},
  year = {2024},
}""",
    "learning": """@inproceedings{zhang2020privately,
  title = {Privately Learning {Markov} Random Fields},
  author = {Zhang, Huanyu and Kamath, Gautam and Kulkarni, Janardhan and Wu, Zhiwei Steven},
  booktitle = {Proceedings of the 37th International Conference on Machine Learning},
  volume = {119},
  pages = {11129--11140},
  year = {2020},
}""",
    "lasso": """@inproceedings{talwar2015nearly,
  title = {Nearly Optimal Private {LASSO}},
  author = {Talwar, Kunal and Thakurta, Abhradeep and Zhang, Li},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {28},
  year = {2015},
}""",
    "range": """@inproceedings{cesar2021bounding,
  title = {Bounding, Concentrating, and Truncating: Unifying Privacy Loss Composition for Data Analytics},
  author = {Cesar, Mark and Rogers, Ryan},
  booktitle = {Proceedings of the 32nd International Conference on Algorithmic Learning Theory},
  volume = {132},
  year = {2021},
}""",
    "topk": """@inproceedings{durfee2019practical,
  title = {Practical Differentially Private Top-k Selection with Pay-what-you-get Composition},
  author = {Durfee, David and Rogers, Ryan},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {32},
  year = {2019},
}""",
    "select": """@article{mckenna2021winning,
  title = {Winning the {NIST} Contest: A Scalable and General Approach to Differentially Private Synthetic Data},
  author = {McKenna, Ryan and Miklau, Gerome and Sheldon, Daniel},
  journal = {Journal of Privacy and Confidentiality},
  volume = {11},
  number = {3},
  year = {2021},
}""",
    "dpsgd": """@inproceedings{abadi2016deep,
  title = {Deep Learning with Differential Privacy},
  author = {Abadi, Mart{\\'i}n and Chu, Andy and Goodfellow, Ian and McMahan, H. Brendan and Mironov, Ilya
            and Talwar, Kunal and Zhang, Li},
  booktitle = {Proceedings of the 2016 ACM SIGSAC Conference on Computer and Communications Security},
  pages = {308--318},
  year = {2016},
}""",
    "accountant": """@inproceedings{koskela2020computing,
  title = {Computing Tight Differential Privacy Guarantees Using {FFT}},
  author = {Koskela, Antti and J{\\"a}lk{\\"o}, Joonas and Honkela, Antti},
  booktitle = {Proceedings of the 23rd International Conference on Artificial Intelligence and Statistics},
  volume = {108},
  pages = {2560--2569},
  year = {2020},
}""",
    "cgm": """@inproceedings{bernstein2017differentially,
  title = {Differentially Private Learning of Undirected Graphical Models Using Collective Graphical Models},
  author = {Bernstein, Garrett and McKenna, Ryan and Sun, Tao and Sheldon, Daniel and Hay, Michael
            and Miklau, Gerome},
  booktitle = {Proceedings of the 34th International Conference on Machine Learning},
  volume = {70},
  pages = {478--487},
  year = {2017},
}""",
    "evidence": """@article{mackay1992bayesian,
  title = {Bayesian Interpolation},
  author = {MacKay, David J. C.},
  journal = {Neural Computation},
  volume = {4},
  pages = {415--447},
  year = {1992},
}""",
    "posterior": """@inproceedings{bernstein2018differentially,
  title = {Differentially Private {Bayesian} Inference for Exponential Families},
  author = {Bernstein, Garrett and Sheldon, Daniel},
  booktitle = {Advances in Neural Information Processing Systems},
  volume = {31},
  year = {2018},
}""",
    "separation": """@article{anandkumar2012separation,
  title = {High-dimensional structure estimation in {I}sing models: local separation criterion},
  author = {Anandkumar, Animashree and Tan, Vincent Y. F. and Huang, Furong and Willsky, Alan S.},
  journal = {The Annals of Statistics},
  volume = {40},
  number = {3},
  pages = {1346--1375},
  year = {2012},
}""",
    "propose": """@inproceedings{dwork2009differential,
  title = {Differential Privacy and Robust Statistics},
  author = {Dwork, Cynthia and Lei, Jing},
  booktitle = {Symposium on Theory of Computing},
  year = {2009},
}""",
    "pymc": """@article{abrilpla2023pymc,
  title = {{PyMC}: A Modern, and Comprehensive Probabilistic Programming Framework in {Python}},
  author = {Abril-Pla, Oriol and Andreani, Virgile and Carroll, Colin and Dong, Larry and Fonnesbeck, Christopher J.
            and Kochurov, Maxim and Kumar, Ravin and Lao, Junpeng and Luhmann, Christian C. and Martin, Osvaldo A.
            and Osthege, Michael and Vieira, Ricardo and Wiecki, Thomas and Zinkov, Robert},
  journal = {PeerJ Computer Science},
  volume = {9},
  pages = {e1516},
  year = {2023},
}""",
}

_RAN = {
    "LaplaceStatistics": ("opendp", "laplace", "geometric"),
    "GaussianStatistics": ("opendp", "gaussian", "zcdp"),
    "ObjectivePerturbation": ("opendp", "prising", "objective"),
    "SelectMeasure": ("opendp", "gaussian", "zcdp", "select", "topk", "range"),
    "PrivateFrankWolfe": ("zcdp", "learning", "lasso", "range"),
    "PrivateLogisticRegression": ("zcdp", "learning", "lasso", "range"),
    "ParityQueries": ("opendp", "gaussian", "zcdp", "learning"),
    "StableStructure": ("opendp", "geometric", "propose", "separation", "learning"),
    "DPSGD": ("opendp", "gaussian", "dpsgd", "accountant"),
    "DPSGDSearch": ("opendp", "gaussian", "dpsgd", "accountant"),
}


def citation(*results: Any) -> str:
    """BibTeX of this library and of the methods behind some results.

    Parameters
    ----------
    results
        Releases, a network's estimates, solutions and posteriors, any number; none gives the library alone. The
        `references` of a solution are keys of entries here, or whole entries that begin with ``@``.

    Returns
    -------
    str
        BibTeX entries, each once.

    Examples
    --------
    >>> print(citation().splitlines()[0])
    @software{bayesprivmrf,
    """
    from importlib.metadata import version

    keys = ["bayesprivmrf"]
    for result in results:
        provenance = getattr(result, "provenance", None)
        keys.extend(_RAN.get(getattr(provenance, "mechanism", ""), ()))
        keys.extend(getattr(result, "references", ()))
    entries = [_ENTRIES.get(key, key) for key in dict.fromkeys(keys)]
    return "\n\n".join(entry for entry in entries if entry.startswith("@")).replace(
        "VERSION", version("bayesprivmrf")
    )
