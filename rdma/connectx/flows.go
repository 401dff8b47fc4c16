package connectx

import "slices"

// flowTables has entries by table, mask and value, so that a frame needs no look at each.
type flowTables map[uint32][]*masked

// masked are a table's entries with one mask. An index is the precedence; several may have one value, in order.
type masked struct {
	mask    [matchSize]byte
	indices map[[matchSize]byte][]uint32
}

// maxMasks limits comparisons for a frame. The driver's tables have few masks.
const maxMasks = 512

func (t *tables) setFlowEntry(k flowKey, f *flow) {
	t.deleteFlowEntry(k)
	t.Flows[k] = f
	if f.Other {
		return
	}
	of := t.flows[k.Table]
	i := slices.IndexFunc(of, func(m *masked) bool { return m.mask == f.Mask })
	if i < 0 {
		i = len(of)
		of = append(of, &masked{mask: f.Mask, indices: map[[matchSize]byte][]uint32{}})
		t.flows[k.Table] = of
	}
	list := of[i].indices[f.Value]
	at, _ := slices.BinarySearch(list, k.Index)
	of[i].indices[f.Value] = slices.Insert(list, at, k.Index)
}

func (t *tables) deleteFlowEntry(k flowKey) {
	f := t.Flows[k]
	delete(t.Flows, k)
	if f == nil || f.Other {
		return
	}
	of := t.flows[k.Table]
	i := slices.IndexFunc(of, func(m *masked) bool { return m.mask == f.Mask })
	list := of[i].indices[f.Value]
	if at, found := slices.BinarySearch(list, k.Index); found {
		list = slices.Delete(list, at, at+1)
	}
	of[i].indices[f.Value] = list
	if len(list) == 0 {
		delete(of[i].indices, f.Value)
	}
	if len(of[i].indices) == 0 {
		t.flows[k.Table] = slices.Delete(of, i, i+1)
	}
}

// match returns the entry with the smallest index, or nil. It takes compared masks from left, and stops when none is
// left.
func (t *tables) match(table uint32, m *[matchSize]byte, left *int) *flow {
	var best *flow
	var index uint32
	for _, of := range t.flows[table] {
		if *left == 0 {
			return nil
		}
		*left--
		value := *m
		for i := range value {
			value[i] &= of.mask[i]
		}
		list := of.indices[value]
		if len(list) > 0 && (best == nil || list[0] < index) {
			index = list[0]
			best = t.Flows[flowKey{table, index}]
		}
	}
	return best
}

func (t *tables) indexFlows() {
	all := t.Flows
	t.Flows, t.flows = map[flowKey]*flow{}, flowTables{}
	for k, f := range all {
		for i := range f.Value { // a damaged state may have other bits
			f.Value[i] &= f.Mask[i]
		}
		t.setFlowEntry(k, f)
	}
}
