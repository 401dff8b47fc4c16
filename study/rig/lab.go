package rig

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/study"
)

// LabFile returns the path of a study's lab file. A relative name is relative to the study's file.
func LabFile(studyFile, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(studyFile), name)
}

// labFor returns the lab of a cell: the lab file with the factors that are its keys.
func (r *Rig) labFor(settings map[string]string) (*lab.Lab, error) {
	l, err := lab.Parse(r.file, r.text)
	if err != nil {
		return nil, err
	}
	keys := labKeys(settings)
	if len(keys) == 0 {
		return l, nil
	}
	var doc yaml.MapSlice
	// ordered, because addresses follow the order of the nodes
	if err := yaml.UnmarshalWithOptions(r.text, &doc, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("%s: %w", r.file, err)
	}
	var what []string
	for _, factor := range keys {
		key, _ := study.LabKey(factor)
		var value any
		if err := yaml.Unmarshal([]byte(settings[factor]), &value); err != nil {
			return nil, fmt.Errorf("factor %s: level %s: %w", factor, settings[factor], err)
		}
		if doc, err = set(doc, strings.Split(key, "."), value); err != nil {
			return nil, fmt.Errorf("factor %s: %w", factor, err)
		}
		what = append(what, key+": "+settings[factor])
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		return nil, err
	}
	// Errors name the changed keys, because line numbers differ from the lab file.
	return lab.Parse(r.file+" with "+strings.Join(what, ", "), text)
}

func labKeys(settings map[string]string) []string {
	return slices.DeleteFunc(lists.Keys(settings), func(factor string) bool {
		_, ok := study.LabKey(factor)
		return !ok
	})
}

func set(doc yaml.MapSlice, path []string, value any) (yaml.MapSlice, error) {
	for i, item := range doc {
		if item.Key != path[0] {
			continue
		}
		if len(path) == 1 {
			doc[i].Value = value
			return doc, nil
		}
		inner, ok := item.Value.(yaml.MapSlice)
		if !ok && item.Value != nil {
			return nil, fmt.Errorf("%s has no keys of its own", path[0])
		}
		inner, err := set(inner, path[1:], value)
		doc[i].Value = inner
		return doc, err
	}
	if len(path) == 1 {
		return append(doc, yaml.MapItem{Key: path[0], Value: value}), nil
	}
	inner, err := set(nil, path[1:], value)
	return append(doc, yaml.MapItem{Key: path[0], Value: inner}), err
}

// local reports whether all tests of the study run on a single node.
func (r *Rig) local() bool {
	return !slices.ContainsFunc(r.spec.Measure, func(m study.Measure) bool {
		e, err := tool.EngineByName(m.Test) // an incast has no engine
		return err != nil || !e.Local
	})
}

// pair returns the client and the server of the study. server is "" if a lab of one node has only local tests.
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

// others returns the nodes with a NIC that are not measured.
func others(l *lab.Lab, client, server string) []lab.Node {
	return lists.Filter(l.Nodes,
		func(n lab.Node) bool { return n.Name != client && n.Name != server && len(n.NICs) > 0 })
}
