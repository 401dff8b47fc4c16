// Package planner answers questions about plans. It reads the host, the model and the tenants, limits the time of
// each search, checks the plan, and asks for the reasons or the conflict. The parts below package plan that do this
// are pure.
package planner
