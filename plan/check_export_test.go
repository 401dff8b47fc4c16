package plan

// What tests of package plan_test draw: they may import the search, which imports this package.
var (
	DrawHost    = drawHost
	DrawLab     = drawLab
	DrawProblem = drawProblem
	Derive      = func(p *Problem, keep []int) *Problem { return derive(p, keep) }
	Brute       = bruteFeasible
)
