// Package planner answers questions about plans: it reads files, limits the time of each search, checks the plan, and
// asks for the reasons or the conflict.
package planner
