package connectx

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/rackless/rackless/rdma/roce"
)

// tables is a driver's state; Save writes the exported fields. Objects are limited by maxObjects, page addresses by
// maxPages, lists by constants beside their commands.
type tables struct {
	CmdQ     uint64
	CmdQHigh uint32
	NICMode  uint32 // nic_interface of the initialization segment
	Events   bool   // an EQ is armed, so commands complete by event
	CmdEQ    uint32
	FaultEQ  uint32 // for page faults
	Caps     []byte // set by the driver, or nil
	Pages    []uint64
	NPages   int // charged, see charged
	Next     map[kind]uint32
	EQs      map[uint32]*eq
	CQs      map[uint32]*cq
	Queues   map[uint32]*queue // QPs, SQs, RQs, RMPs and SRQs share numbers
	Keys     map[uint32]*mkey
	PDs      map[uint32]bool
	GIDs     map[uint32]gidEntry
	TIRs     map[uint32]*tir
	TISs     map[uint32]uint32 // their transport domains
	RQTs     map[uint32][]uint32
	Flows    map[flowKey]*flow
	Groups   map[uint32]*flowGroup
	Root     uint32
	Misses   map[uint32]uint32 // flow tables: the next for frames without a match
	Counters map[uint32]*roce.Counters
	Mcast    map[mcast]bool
	Memic    map[uint64]uint64 // device memory: places in the BAR, with their sizes
	Others   map[uint64]bool   // by kind<<32 | number
	Uctx     map[uint16]uint32 // user contexts, with their rights
	Umems    map[uint32]*umem
	Owners   map[objectID]uint16 // uids of objects that are not of 0
	// FlowCounters have the counts of frames that matched.
	FlowCounters map[uint32]*tally
	Rates        map[uint32]uint32 // of packet pacing, in kbit/s
	VPort        []byte            // NIC vport context
	UCList       [][6]byte
	MCList       [][6]byte
	VLANs        []uint16
	Cong         roce.Congestion
	QoS          roce.QoS
	Shares       [8]share // of traffic classes
	MTU          uint32
	AdminDown    bool
	Regs         map[uint32][]byte
	Traffic      traffic
	count        counts
	flows        flowTables            // index of Flows
	groups       map[roce.GID][]uint32 // index of Mcast

	domainOf    map[objectID]uint32 // protection domains of the programs' queues and keys
	domainUsers map[uint32]int      // their number by domain
}

type kind uint8

const (
	// kindOther objects are looked up by type, so two may have one number.
	kindOther kind = iota
	kindUAR
	kindEQ
	kindKey
	kindCQ
	kindQueue
	kindCounter
	kindUctx
	kindUmem
)

// firstNumber is at least 1: 0 means "none", QPs 0 and 1 are special in InfiniBand, key index 1 is the reserved key,
// and UARs start at page 16 of the BAR.
var firstNumber = map[kind]uint32{kindOther: 1, kindUAR: 16, kindEQ: 1, kindKey: 0x200, kindCQ: 0x400, kindQueue: 0x100,
	kindCounter: 1, kindUctx: 1, kindUmem: 1}

const (
	maxQueueNumber = 1 << 18
	maxKeyNumber   = 1 << 24
)

// randomNumbers returns first numbers of queues and keys, so that a guest cannot guess another's, by which it would
// reach its queues and memory, even if both come from one template.
func randomNumbers() map[kind]uint32 {
	return map[kind]uint32{kindQueue: rand.Uint32N(maxQueueNumber), kindKey: rand.Uint32N(maxKeyNumber)}
}

func newTables() tables {
	return tables{Next: randomNumbers(), EQs: map[uint32]*eq{}, CQs: map[uint32]*cq{}, Queues: map[uint32]*queue{},
		Keys: map[uint32]*mkey{}, PDs: map[uint32]bool{}, GIDs: map[uint32]gidEntry{}, TIRs: map[uint32]*tir{},
		TISs: map[uint32]uint32{}, RQTs: map[uint32][]uint32{}, Flows: map[flowKey]*flow{}, flows: flowTables{},
		Groups:   map[uint32]*flowGroup{},
		Misses:   map[uint32]uint32{},
		Counters: map[uint32]*roce.Counters{}, Mcast: map[mcast]bool{}, groups: map[roce.GID][]uint32{},
		Memic:  map[uint64]uint64{},
		Others: map[uint64]bool{}, Uctx: map[uint16]uint32{}, Umems: map[uint32]*umem{},
		Owners: map[objectID]uint16{}, Rates: map[uint32]uint32{}, FlowCounters: map[uint32]*tally{},
		domainOf: map[objectID]uint32{}, domainUsers: map[uint32]int{},
		Cong: roce.DefaultCongestion(), QoS: roce.DefaultQoS(), MTU: 1500 + 22, Regs: map[uint32][]byte{}}
}

// number returns an unused number below limit, or 0. Numbers increase and wrap around, so that a late packet or
// doorbell for a destroyed object does not reach a new one.
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
	return len(t.CQs) + len(t.Queues) + len(t.Keys) + len(t.PDs) + len(t.TIRs) + len(t.TISs) + len(t.RQTs) +
		len(t.Flows) + len(t.Groups) + len(t.Misses) + len(t.Others) + len(t.Mcast) + len(t.Memic) +
		len(t.Uctx) + len(t.Umems) + len(t.FlowCounters)
}

type gidEntry struct {
	GID     [16]byte
	MAC     [6]byte
	Version byte // 0 RoCE v1, 2 RoCE v2
	L3      byte // 0 IPv4, 1 IPv6
	VLAN    uint16
	Tagged  bool
}

// saved has the device id, so that another model is refused. gob omits unexported fields, which revive recreates, and
// tolerates added or missing ones.
type saved struct {
	Device uint16
	Config []byte
	Beat   uint32
	Tables *tables
}

// Shape returns a digest of the properties that a driver sees, which must be the same for Restore. stateFormat must be
// raised if older states become unusable without such a change.
func Shape(model string) string {
	p := &Port{model: models[model], s: &Server{gids: map[gidKey]*Port{}}}
	p.hardReset()
	h := sha256.New()
	fmt.Fprintln(h, stateFormat, p.model, barSize, p.config)
	for _, c := range []map[bits]uint64{generalCaps, newCaps, newDevX, memoryCaps, qosCaps, pagingCaps, ethCaps,
		atomicCaps, roceCaps, flowCaps} {
		fmt.Fprintln(h, c) // in the order of the keys
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

const stateFormat = 1

// Save returns the state of a stopped guest's adapter without memory and messages on the wire: a template has none, and
// otherwise their senders repeat them.
func (p *Port) Save() ([]byte, error) {
	p.lock()
	defer p.unlock()
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(saved{p.model.device, p.config[:], p.beat.Load(), &p.tables})
	return b.Bytes(), err
}

// Restore sets a state of Save, maybe of another MAC and name (see NIC.MAC). It must be called before QEMU connects, or
// while the guest is stopped; the reset that QEMU sends when it connects does not undo it.
func (p *Port) Restore(state []byte) error {
	t := newTables()
	// gob omits zero values, and the defaults of these are not zero.
	t.Cong, t.QoS = roce.Congestion{}, roce.QoS{}
	in := saved{Tables: &t}
	if err := gob.NewDecoder(bytes.NewReader(state)).Decode(&in); err != nil {
		return fmt.Errorf("connectx: the saved state of an adapter: %w", err)
	}
	if in.Device != p.model.device || len(in.Config) != len(p.config) {
		return errors.New("connectx: the saved state is that of another adapter model")
	}
	if !t.sound() {
		return errors.New("connectx: the saved state of an adapter is damaged")
	}
	p.lock()
	defer p.unlock()
	p.hardReset()
	copy(p.config[:], in.Config)
	p.configChanged = true
	p.restored = true
	p.beat.Store(in.Beat)
	gids := t.GIDs
	t.GIDs = map[uint32]gidEntry{}
	p.tables = t
	p.NPages = t.charged()
	p.indexFlows()
	p.indexGroups()
	p.countUsers()
	for i, g := range gids {
		// Adapters of one state share its addresses until their guests set their own. Only the first can be reached by
		// them.
		if !p.setGID(i, g) {
			p.GIDs[i] = g
		}
	}
	maps.Copy(p.Next, randomNumbers())
	for _, q := range p.Queues {
		switch {
		case q.Kind == queueQP && q.State != roce.Reset:
			p.revive(q)
		case q.Kind == queueDCT && dctcState.get(q.Ctx) != dctcDrained:
			p.serveDCT(q)
		}
	}
	return nil
}

func (t *tables) charged() (n int) {
	for _, q := range t.Queues {
		n += q.pages() + len(q.Ring.Pages)
	}
	for _, c := range t.CQs {
		n += len(c.Ring.Pages)
	}
	for _, e := range t.EQs {
		n += len(e.Ring.Pages)
	}
	for _, k := range t.Keys {
		n += len(k.Pages)
	}
	for _, u := range t.Umems {
		n += len(u.Pages)
	}
	return n
}

// sound checks the sizes on which other code relies.
func (t *tables) sound() bool {
	for _, q := range t.Queues {
		size, known := contextSizes[q.Kind]
		if !known || len(q.Ctx) != size || !q.bounded() ||
			q.Kind == queueDCT && (q.Service != 0 || q.Receives != receivesSRQ) {
			return false
		}
	}
	for _, c := range t.CQs {
		if len(c.Ctx) != cqcSize || c.Log > maxEventLog {
			return false
		}
	}
	for _, e := range t.EQs {
		if e.Log > maxEventLog || e.Vector >= vectors {
			return false
		}
	}
	for _, k := range t.Keys {
		if (k.Mode == modeMTT || k.Mode == modeKSM) && (k.Shift < minPageShift || k.Shift > maxPageShift) ||
			len(k.Pages) > k.maxPages() {
			return false
		}
	}
	for _, u := range t.Umems {
		if !u.fits(len(u.Pages)) {
			return false
		}
	}
	for id, uid := range t.Owners {
		if _, known := t.Uctx[uid]; destroyers[class(id>>32)] == 0 || !ofDriver(uid) && !known {
			return false
		}
	}
	for _, f := range t.Flows {
		if len(f.Dests) > maxDests || len(f.Counters) > maxCounts {
			return false
		}
	}
	return t.soundUmems() && t.soundSizes()
}

// soundUmems reports whether there are all umems that something uses.
func (t *tables) soundUmems() bool {
	there := func(of umemsOf) bool {
		return !slices.ContainsFunc(of[:], func(n uint32) bool { return n != 0 && t.Umems[n] == nil })
	}
	for _, q := range t.Queues {
		if !there(q.Umems) {
			return false
		}
	}
	for _, c := range t.CQs {
		if !there(c.Umems) {
			return false
		}
	}
	for _, k := range t.Keys {
		if !there(k.Umems) {
			return false
		}
	}
	return true
}

func (t *tables) soundSizes() bool {
	return (t.Caps == nil || len(t.Caps) == capSize) && (t.VPort == nil || len(t.VPort) == vportSize)
}

var contextSizes = map[uint8]int{queueQP: qpcSize, queueSQ: wqcSize, queueRQ: wqcSize, queueRMP: wqcSize,
	queueSRQ: srqcSize, queueDCT: dctcSize}

// revive recreates the unsaved parts of a QP. roce goes through the earlier states, with the saved attributes. Packet
// numbers restart, so both ends of a connection must be restored together.
func (p *Port) revive(q *queue) {
	p.setAttr(q)
	q.rang = p.s.now()
	path := []roce.State{roce.Init, roce.ReadyToReceive, roce.ReadyToSend}
	if i := slices.Index(path, q.State); i >= 0 {
		path = path[:i+1]
	} else if q.State == roce.Failed {
		path = []roce.State{roce.Init, roce.Failed}
	}
	for _, to := range path {
		p.wireState(q, to)
	}
	p.wait(q, q.rang)
}
