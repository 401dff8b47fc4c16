package connectx

import "github.com/rackless/rackless/roce"

// tables is what a driver has set up in an adapter: plain data, which Save writes. Exported fields are saved. All of it
// is bounded: objects by maxObjects, page addresses by maxPages, lists by constants beside their commands.
type tables struct {
	CmdQ      uint64
	CmdQHigh  uint32
	NICMode   uint32 // nic_interface of the init segment
	Events    bool   // commands complete by event: the driver has armed an EQ
	CmdEQ     uint32
	Caps      []byte // the general capabilities as the driver set them, or nil
	Pages     []uint64
	NPages    int // page addresses in all objects
	Next      map[kind]uint32
	EQs       map[uint32]*eq
	CQs       map[uint32]*cq
	Queues    map[uint32]*queue // QPs, SQs, RQs, RMPs and SRQs have their numbers in common
	Keys      map[uint32]*mkey
	PDs       map[uint32]bool
	GIDs      map[uint32]gidEntry
	TIRs      map[uint32]*tir
	RQTs      map[uint32][]uint32
	Flows     map[flowKey]*flow
	Groups    map[uint32]*flowGroup
	Root      uint32
	Misses    map[uint32]uint32 // by flow table: where frames go that match nothing
	Counters  map[uint32]*roce.Counters
	Mcast     map[mcast]bool
	Others    map[uint64]bool // other objects, by kind<<32 | number
	VPort     []byte          // NIC vport context
	UCList    [][6]byte
	MCList    [][6]byte
	VLANs     []uint16
	Cong      roce.Congestion
	QoS       roce.QoS
	Shares    [8]share // of traffic classes
	MTU       uint32
	AdminDown bool
	Regs      map[uint32][]byte
	Traffic   traffic
	count     counts
}

// kind of a numbered object, for the next free number.
type kind uint8

const (
	// Flow tables, TIRs, RQTs and others share kindOther: their numbers are looked up by type, so that two of them may
	// be equal.
	kindOther kind = iota
	kindUAR
	kindEQ
	kindKey
	kindCQ
	kindQueue
	kindCounter
)

// firstNumber is where the numbers of a kind start. 0 means "none" in answers and contexts. QPs 0 and 1 have a meaning
// in InfiniBand, key index 1 is the reserved key, and the pages of the BAR before 16 are no UARs.
var firstNumber = map[kind]uint32{kindOther: 1, kindUAR: 16, kindEQ: 1, kindKey: 0x200, kindCQ: 0x400, kindQueue: 0x100,
	kindCounter: 1}

func newTables() tables {
	return tables{Next: map[kind]uint32{}, EQs: map[uint32]*eq{}, CQs: map[uint32]*cq{}, Queues: map[uint32]*queue{},
		Keys: map[uint32]*mkey{}, PDs: map[uint32]bool{}, GIDs: map[uint32]gidEntry{}, TIRs: map[uint32]*tir{},
		RQTs: map[uint32][]uint32{}, Flows: map[flowKey]*flow{}, Groups: map[uint32]*flowGroup{},
		Misses:   map[uint32]uint32{},
		Counters: map[uint32]*roce.Counters{}, Mcast: map[mcast]bool{}, Others: map[uint64]bool{},
		Cong: roce.DefaultCongestion(), QoS: roce.DefaultQoS(), MTU: 1500 + 22, Regs: map[uint32][]byte{}}
}

// number gives a new object its number, below limit and in use by none; 0 if there is none. Numbers go up and around
// instead of taking the lowest free one: a late packet or doorbell for a destroyed object then meets none, not a new
// one. The loop ends, as maxObjects is checked first and limit bounds it.
func (t *tables) number(k kind, limit uint32, used func(uint32) bool) uint32 {
	if t.objects() >= maxObjects {
		return 0
	}
	first := firstNumber[k]
	n := max(t.Next[k], first)
	for range limit {
		if n >= limit {
			n = first
		}
		if !used(n) {
			t.Next[k] = n + 1
			return n
		}
		n++
	}
	return 0
}

func (t *tables) objects() int {
	return len(t.CQs) + len(t.Queues) + len(t.Keys) + len(t.PDs) + len(t.TIRs) + len(t.RQTs) + len(t.Flows) +
		len(t.Groups) + len(t.Misses) + len(t.Others)
}

// gidEntry is a row of the RoCE address table.
type gidEntry struct {
	GID     [16]byte
	MAC     [6]byte
	Version byte // 0 RoCE v1, 2 RoCE v2
	L3      byte // 0 IPv4, 1 IPv6
	VLAN    uint16
	Tagged  bool
}

// mcast says that a QP has joined a multicast group.
type mcast struct {
	GID [16]byte
	QPN uint32
}
