// Package planner answers questions about plans: it reads host, model and tenants, gives each search
// its time, has the plan checked, and asks for the reasons or the conflict. The parts that do that
// are pure and lie below package plan.
package planner
