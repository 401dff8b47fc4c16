// Package tables shows the results of verbs that have no page: as tables and lists for people, and as JSON. They are
// the steps that change a host, the switch of a lab and its adapters, recommendations, verdicts on virtual machines,
// and lists of labs, emulated hosts and images. Those of labs and of this machine are built for Linux alone, as their
// verbs are.
package tables
