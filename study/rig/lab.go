package rig

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/study"
)

// LabFile returns the path of a lab file, relative to the study's file.
func LabFile(studyFile, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(studyFile), name)
}

func (r *Rig) labFor(settings map[string]string) (*lab.Lab, error) {
	l, err := lab.Parse(r.file, r.text)
	if err != nil {
		return nil, err
	}
	keys := labKeys(settings)
	if len(keys) == 0 {
		return l, nil
	}
	text := r.text
	var what []string
	for _, factor := range keys {
		key, _ := study.LabKey(factor)
		if text, err = strictyaml.Edit(text, key, settings[factor]); err != nil {
			return nil, fmt.Errorf("factor %s: %w", factor, err)
		}
		what = append(what, key+": "+settings[factor])
	}
	// Line numbers differ from the lab file, so errors name keys.
	return lab.Parse(r.file+" with "+strings.Join(what, ", "), text)
}

func labKeys(settings map[string]string) []string {
	return slices.DeleteFunc(lists.Keys(settings), func(factor string) bool {
		_, ok := study.LabKey(factor)
		return !ok
	})
}

func (r *Rig) local() bool {
	return !slices.ContainsFunc(r.spec.Measure, func(m study.Measure) bool {
		e, err := tool.EngineByName(m.Test) // an incast has no engine
		return err != nil || !e.Local
	})
}

// pair returns server "" for one node with only local tests.
func (r *Rig) pair(l *lab.Lab) (client, server string, err error) {
	names := l.NodeNames()
	if len(r.spec.Pair) == 2 {
		for _, p := range r.spec.Pair {
			if !slices.Contains(names, p) {
				return "", "", fmt.Errorf("pair: lab %s has no node %s; it has %s", l.Name, p,
					strings.Join(names, ", "))
			}
		}
		return r.spec.Pair[0], r.spec.Pair[1], nil
	}
	if len(names) == 1 && r.local() {
		return names[0], "", nil
	}
	if len(names) < 2 {
		return "", "", fmt.Errorf("lab %s has %d node, and a study measures between two", l.Name, len(names))
	}
	return names[1], names[0], nil
}

func others(l *lab.Lab, client, server string) []lab.Node {
	return lists.Filter(l.Nodes,
		func(n lab.Node) bool { return n.Name != client && n.Name != server && len(n.NICs) > 0 })
}
