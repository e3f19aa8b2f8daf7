// Order of the site's search results: guides first, then tutorials, explanations and the reference. The page of a
// class or function whose name is typed in full comes before all of them. The numbers below `score` are Sphinx's own.
var Scorer = {
  score: ([docname, title, , , score, , kind]) => {
    const step = 100; // larger than most scores, so that the section decides
    const sections = ["reference", "benchmarks", "developer", "explanation", "tutorials", "how-to"];
    const section = Math.max(sections.indexOf(docname.split("/")[0]), 0);
    const isOwnPage = kind === "object" && docname.endsWith(`/${title}`);
    const isFullName = isOwnPage && score >= Scorer.objNameMatch + Scorer.objPrio[1];
    return score + step * (isFullName ? sections.length : section);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
