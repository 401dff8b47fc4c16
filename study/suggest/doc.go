// Package suggest searches for parameters of switches and NICs with which a simulated network does better than with
// those of its file, and measures what each of them changes. The package reads no clock and draws no random numbers of
// its own, so the same file and number of trials give the same suggestion.
package suggest
