package gpu

// deviceGPU is the type, chapter 5.
const deviceGPU = 16

// Queues, chapter 5.7.2. The driver needs the one for cursors, which has nothing to do.
const (
	controlQueue = iota
	cursorQueue
	numQueues

	maxQueue = 256
	noVector = 0xffff
)

// Chapter 2.1.
const (
	statusDriverOK   = 4
	statusFeaturesOK = 8
	statusNeedsReset = 64
)

// Chapters 6 and 5.7.3. Linux allows VRAM blobs only for devices that offer 3D rendering; without capsets no program
// finds a renderer.
const (
	featureVirgl    = 1 << 0
	featureBlob     = 1 << 3
	featureIndirect = 1 << 28
	featureVersion1 = 1 << 32
	featureAccess   = 1 << 33 // addresses are the platform's: behind an IOMMU, its
	features        = featureVirgl | featureBlob | featureIndirect | featureVersion1 | featureAccess
)

// Bits of the register ISR.
const (
	interruptQueue = 1
	interruptConf  = 2
)

// virtio holds the registers of chapter 4.1.4.3. Save keeps all of it.
type virtio struct {
	Status       byte
	DeviceSelect uint32 // half of the offered features
	DriverSelect uint32
	Features     uint64 // of the driver
	ConfigVector uint16
	QueueSelect  uint16
	ISR          byte
	Queues       [numQueues]queue
}

type queue struct {
	Size, Vector      uint16
	Enabled           bool
	Desc, Avail, Used uint64 // addresses of the guest
	Next              uint16 // of available requests
	Done              uint16 // number of requests answered
}

// virtioReset frees all VRAM.
func (g *GPU) virtioReset() {
	g.virtio = virtio{ConfigVector: noVector}
	for i := range g.virtio.Queues {
		g.virtio.Queues[i] = queue{Size: maxQueue, Vector: noVector}
	}
	g.freeAll()
}

// violated stops the GPU until the driver resets it, chapter 2.1.2.
func (g *GPU) violated() {
	v := &g.virtio
	if v.Status&statusNeedsReset != 0 {
		return
	}
	v.Status |= statusNeedsReset
	if !g.blamed {
		g.blamed = true
		g.logf("the guest has violated the virtio specification; its driver must reset the GPU")
	}
	if v.Status&statusDriverOK != 0 {
		g.interrupt(v.ConfigVector, interruptConf)
	}
}

// interrupt raises a vector, or sets a bit that a driver without vectors polls.
func (g *GPU) interrupt(vector uint16, bit byte) {
	if vector == noVector {
		g.virtio.ISR |= bit
		return
	}
	g.vfu.Interrupt(int(vector))
}

// resumed handles the first access of a restored guest. Interrupts that were pending have been lost, and one too many
// does no harm.
func (g *GPU) resumed() {
	if !g.restored {
		return
	}
	g.restored = false
	for i := range g.virtio.Queues {
		if q := &g.virtio.Queues[i]; q.Enabled {
			g.interrupt(q.Vector, interruptQueue)
		}
	}
}

const (
	commonSize = 0x38
	deviceSize = 16
)

// overlay copies registers at an offset to an access at off, as far as it covers them.
func overlay(p []byte, off uint64, registers []byte, at uint64) {
	for i, b := range registers {
		if k := at + uint64(i) - off; k < uint64(len(p)) {
			p[k] = b
		}
	}
}

func (g *GPU) barRead(off uint64, p []byte) {
	clear(p)
	if g.plain() {
		return
	}
	v := &g.virtio
	if off < regCommon+commonSize {
		var c [commonSize]byte
		le.PutUint32(c[0x00:], v.DeviceSelect)
		if v.DeviceSelect < 2 {
			le.PutUint32(c[0x04:], uint32(uint64(features)>>(32*v.DeviceSelect)))
		}
		le.PutUint32(c[0x08:], v.DriverSelect)
		if v.DriverSelect < 2 {
			le.PutUint32(c[0x0c:], uint32(v.Features>>(32*v.DriverSelect)))
		}
		le.PutUint16(c[0x10:], v.ConfigVector)
		le.PutUint16(c[0x12:], numQueues)
		c[0x14] = v.Status
		le.PutUint16(c[0x16:], v.QueueSelect)
		if v.QueueSelect < numQueues {
			v.Queues[v.QueueSelect].registers(c[:], v.QueueSelect)
		}
		overlay(p, off, c[:], regCommon)
	}
	if off <= regISR && off+uint64(len(p)) > regISR {
		overlay(p, off, []byte{v.ISR}, regISR)
		v.ISR = 0
	}
	// One output without a screen, because Linux 6.1 refuses a GPU without. No events, no capsets.
	overlay(p, off, []byte{8: 1, 15: 0}, regDevice)
}

func (q *queue) registers(c []byte, number uint16) {
	le.PutUint16(c[0x18:], q.Size)
	le.PutUint16(c[0x1a:], q.Vector)
	if q.Enabled {
		le.PutUint16(c[0x1c:], 1)
	}
	le.PutUint16(c[0x1e:], number) // in units of notifyBytes
	le.PutUint64(c[0x20:], q.Desc)
	le.PutUint64(c[0x28:], q.Avail)
	le.PutUint64(c[0x30:], q.Used)
}

// barWrite returns the queue that is notified, or -1. Accesses of another width than a register's are ignored, except
// for halves of addresses.
func (g *GPU) barWrite(off uint64, p []byte) (queue int) {
	if g.plain() {
		return -1
	}
	if off >= regNotify && off < regNotify+notifyBytes*numQueues {
		return int(off-regNotify) / notifyBytes
	}
	var w [8]byte
	if len(p) > len(w) {
		return -1
	}
	copy(w[:], p)
	x := le.Uint64(w[:])
	v := &g.virtio
	switch n := len(p); {
	case off == 0x00 && n == 4:
		v.DeviceSelect = uint32(x)
	case off == 0x08 && n == 4:
		v.DriverSelect = uint32(x)
	case off == 0x0c && n == 4:
		if v.Status&statusFeaturesOK == 0 && v.DriverSelect < 2 {
			shift := 32 * v.DriverSelect
			v.Features = v.Features&^(0xffffffff<<shift) | x<<shift
		}
	case off == 0x10 && n == 2:
		v.ConfigVector = vectorOf(x)
	case off == 0x14 && n == 1:
		g.setStatus(byte(x))
	case off == 0x16 && n == 2:
		v.QueueSelect = uint16(x)
	case off >= 0x18 && v.QueueSelect < numQueues:
		v.Queues[v.QueueSelect].set(off, n, x)
	}
	return -1
}

// vectorOf returns noVector for vectors that do not exist.
func vectorOf(x uint64) uint16 {
	if x >= vectors {
		return noVector
	}
	return uint16(x)
}

// setStatus keeps FEATURES_OK only if the device supports the selected features.
func (g *GPU) setStatus(s byte) {
	v := &g.virtio
	if s == 0 {
		g.virtioReset()
		return
	}
	if v.Features&^features != 0 || v.Features&featureVersion1 == 0 {
		s &^= statusFeaturesOK
	}
	v.Status = s&^statusNeedsReset | v.Status&statusNeedsReset
}

// set writes a queue's register. In use only the vector can be changed.
func (q *queue) set(off uint64, n int, x uint64) {
	switch {
	case off == 0x1a && n == 2:
		q.Vector = vectorOf(x)
	case q.Enabled:
	case off == 0x18 && n == 2:
		if sizeAllowed(uint16(x)) {
			q.Size = uint16(x)
		}
	case off == 0x1c && n == 2:
		q.Enabled = x == 1 && q.aligned()
	case off >= 0x20 && off < 0x38:
		a := []*uint64{&q.Desc, &q.Avail, &q.Used}[(off-0x20)/8]
		switch {
		case off%8 == 0 && n == 8:
			*a = x
		case off%8 == 0 && n == 4:
			*a = *a&^0xffffffff | x
		case off%8 == 4 && n == 4:
			*a = *a&0xffffffff | x<<32
		}
	}
}

func sizeAllowed(n uint16) bool { return n > 0 && n <= maxQueue && n&(n-1) == 0 }

// aligned tests the rule of chapter 2.7.
func (q *queue) aligned() bool { return q.Desc%16 == 0 && q.Avail%2 == 0 && q.Used%4 == 0 }
