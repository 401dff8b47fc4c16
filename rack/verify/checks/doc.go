// Package checks compares a lab and its host with the plan or the lab file. Each check returns a finding.Finding; it
// reads nothing itself.
package checks
