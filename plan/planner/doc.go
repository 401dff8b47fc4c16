// Package planner answers questions about plans: it reads host, model and tenants, limits the time of each search, lets
// the plan be checked, and asks for the reasons or the conflict. The parts that do that are pure and lie below package
// plan.
package planner
