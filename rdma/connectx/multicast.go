package connectx

import (
	"slices"

	"github.com/rackless/rackless/rdma/roce"
)

type mcast struct {
	GID [16]byte
	QPN uint32
}

// maxMembers is for a group, like a card's max_qp_mcg.
const maxMembers = 240

// attachMcast charges a member as an object.
func attachMcast(p *Port, q *queue, in, _ []byte) status {
	m := mcast{[16]byte(in[0x10:0x20]), q.Num}
	switch {
	case q.Kind != queueQP || !q.datagrams():
		return badResource
	case p.Mcast[m]:
		return ok
	case len(p.groups[m.GID]) >= maxMembers || p.objects() >= maxObjects:
		return limit
	}
	p.Mcast[m] = true
	p.join(m)
	return ok
}

func detachMcast(p *Port, q *queue, in, _ []byte) status {
	p.leave(mcast{[16]byte(in[0x10:0x20]), q.Num})
	return ok
}

func (t *tables) join(m mcast) {
	list := t.groups[m.GID]
	at, _ := slices.BinarySearch(list, m.QPN)
	t.groups[m.GID] = slices.Insert(list, at, m.QPN)
}

func (t *tables) leave(m mcast) {
	if !t.Mcast[m] {
		return
	}
	delete(t.Mcast, m)
	list := t.groups[m.GID]
	if at, found := slices.BinarySearch(list, m.QPN); found {
		list = slices.Delete(list, at, at+1)
	}
	if t.groups[m.GID] = list; len(list) == 0 {
		delete(t.groups, m.GID)
	}
}

func (t *tables) indexGroups() {
	t.groups = map[roce.GID][]uint32{}
	for m := range t.Mcast {
		t.join(m)
	}
}

// group returns the members, without a sender that has block_lb_mc.
func (p *Port) group(packet *roce.Packet) []uint32 {
	all := p.groups[packet.Dst]
	if !p.looped {
		return all
	}
	sender := p.Queues[packet.SrcQP]
	at, member := slices.BinarySearch(all, packet.SrcQP)
	if !member || sender == nil || !qpcBlockLbMc.is(sender.Ctx) {
		return all
	}
	return slices.Concat(all[:at], all[at+1:])
}

// joined reports whether queues here are in a frame's group. A card gives them a copy; the host's stack does so by
// itself.
func (p *Port) joined(frame []byte) bool {
	if len(p.groups) == 0 {
		return false
	}
	to, found := roce.Destination(frame)
	return found && len(p.groups[to]) > 0
}
