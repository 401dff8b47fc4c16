// Package checks compares a lab and its host with the plan. Each check compares values that were read (of the host, of
// libvirt's domains, of the guests, of emulated nodes) with what the plan or the lab file says, and returns a
// finding.Finding with what it read, where, what it wanted and the fix. It reads nothing itself. The texts that explain
// checks are in package finding.
package checks
