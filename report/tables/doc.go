// Package tables shows the results of verbs that have no page: as tables and lists for people, and as JSON. The ones of
// labs and of this machine are built for Linux alone, as their verbs are.
package tables
