package bench

import (
	"fmt"
	"slices"
	"strings"
)

// A Pair is one measurement: the client sends to the server (and reads from it, for ib_read_bw).
type Pair struct {
	Client, Server string
}

// Plans of pairs for Pairs.
const (
	PairsAll   = "all"   // n(n-1)/2 pairs
	PairsFirst = "first" // n-1 pairs
	PairsRing  = "ring"  // each node with the next, the last with the first
	PairsAuto  = "auto"
)

// fewNodes have ten pairs: each takes minutes, and they are measured one at a time.
const fewNodes = 5

// CheckPairs returns an error if a plan of pairs is wrong for any lab.
func CheckPairs(plan string) error {
	plans := []string{PairsAuto, PairsAll, PairsFirst, PairsRing}
	if slices.Contains(plans, plan) {
		return nil
	}
	for word := range strings.SplitSeq(plan, ",") {
		if !strings.Contains(word, ":") {
			return fmt.Errorf("%q are no pairs of nodes: want %s, or CLIENT:SERVER with commas between", plan,
				strings.Join(plans, ", "))
		}
	}
	return nil
}

// Pairs returns the pairs of a plan, or of CLIENT:SERVER,... Except in a ring, the earlier node is the server.
func Pairs(nodes []string, plan string) ([]Pair, error) {
	if len(nodes) < 2 {
		return nil, fmt.Errorf("make pairs: %d node; at least 2 are needed", len(nodes))
	}
	seen := make(map[string]bool)
	for _, n := range nodes {
		if n == "" || seen[n] {
			return nil, fmt.Errorf("make pairs: node name %q is empty or given twice", n)
		}
		seen[n] = true
	}
	if plan == PairsAuto {
		plan = PairsAll
		if len(nodes) > fewNodes {
			plan = PairsRing
		}
	}
	var pairs []Pair
	switch plan {
	case PairsAll:
		for i, server := range nodes {
			for _, client := range nodes[i+1:] {
				pairs = append(pairs, Pair{Client: client, Server: server})
			}
		}
	case PairsFirst:
		for _, client := range nodes[1:] {
			pairs = append(pairs, Pair{Client: client, Server: nodes[0]})
		}
	case PairsRing:
		for i, client := range nodes {
			pairs = append(pairs, Pair{Client: client, Server: nodes[(i+1)%len(nodes)]})
		}
		if len(nodes) == 2 {
			pairs = pairs[:1]
		}
	default:
		if err := CheckPairs(plan); err != nil {
			return nil, fmt.Errorf("make pairs: %w", err)
		}
		for word := range strings.SplitSeq(plan, ",") {
			client, server, _ := strings.Cut(word, ":")
			if !seen[client] || !seen[server] || client == server {
				return nil, fmt.Errorf("make pairs: %q is no pair of %s", word, strings.Join(nodes, ", "))
			}
			pairs = append(pairs, Pair{Client: client, Server: server})
		}
	}
	return pairs, nil
}
