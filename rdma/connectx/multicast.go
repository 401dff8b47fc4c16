package connectx

import (
	"slices"

	"github.com/rackless/rackless/rdma/roce"
)

// mcast is a queue's membership in a multicast group.
type mcast struct {
	GID [16]byte
	QPN uint32
}

// maxMembers limits the queues of one group, like max_qp_mcg of a card.
const maxMembers = 240

// attachMcast adds a datagram queue to a group. A member counts as an object of the guest.
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

// join adds a member to the index, in the order of their numbers.
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

// indexGroups makes the index of restored memberships.
func (t *tables) indexGroups() {
	t.groups = map[roce.GID][]uint32{}
	for m := range t.Mcast {
		t.join(m)
	}
}

// group returns the members that a packet to a group is for. A queue with block_lb_mc does not get its own packets.
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

// joined reports whether queues of this port have joined the group that a frame is for. A card gives them a copy; the
// host's stack does so by itself.
func (p *Port) joined(frame []byte) bool {
	if len(p.groups) == 0 {
		return false
	}
	to, found := roce.Destination(frame)
	return found && len(p.groups[to]) > 0
}
