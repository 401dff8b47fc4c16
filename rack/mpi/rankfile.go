package mpi

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/render/openmpi"
	"github.com/rackless/rackless/rack"
)

func (o *Options) rankfile(slots []int) string {
	var nodes []openmpi.Node
	for i, s := range slots {
		nodes = append(nodes, openmpi.Node{Name: o.Nodes[i].Node, CPUs: o.Nodes[i].CPUs, Ranks: s})
	}
	return openmpi.Rankfile(o.Lab, o.Plan, nodes)
}

// Rankfile returns the rank file of a run.
func (o *Options) Rankfile() (string, error) {
	slots, err := o.slots()
	if err == nil && crowded(o.Nodes, slots) {
		err = errors.New("a node has more ranks than CPUs: they share them, and none is bound")
	}
	if err != nil {
		return "", err
	}
	return o.rankfile(slots), nil
}

func crowded(nodes []Node, slots []int) bool {
	for i, s := range slots {
		if s > nodes[i].CPUs {
			return true
		}
	}
	return false
}

// rankfilePath differs between concurrent runs.
func rankfilePath(text string) string {
	return fmt.Sprintf("/run/rackless-ranks-%.4x", sha256.Sum256([]byte(text)))
}

func writing(text string, argv []string) []string {
	const script = `printf %s "$1" >"$0" && shift && exec "$@"`
	return append([]string{"sh", "-c", script, rankfilePath(text), text}, argv...)
}

// PlanOf returns the plan that placed a lab on a host, or nil.
func PlanOf(r *rack.Rack) (*plan.Plan, error) {
	h, ok := r.Hosted()
	if !ok {
		return nil, nil
	}
	place, err := h.Placement()
	if err != nil {
		return nil, err
	}
	return place.Plan, nil
}
