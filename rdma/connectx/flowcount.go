package connectx

// Flow counters count the frames of entries of flow tables.

// actionCount of an entry means that its list of counters follows its destinations.
const actionCount = 8

// maxCounts is the number of counters of an entry, of which the driver gives one.
const maxCounts = 4

func allocFlowCounter(p *Port, _, out []byte, _ uint32) status {
	n := p.number(kindOther, 1<<16, func(n uint32) bool { return p.FlowCounters[n] != nil })
	if n == 0 {
		return limit
	}
	p.FlowCounters[n] = &tally{}
	put24(out, n)
	return ok
}

func deallocFlowCounter(p *Port, _, _ []byte, id uint32) status {
	delete(p.FlowCounters, id)
	return ok
}

// queryFlowCounter returns as many counters from a number on as the answer has space for, and clears them if asked.
func queryFlowCounter(p *Port, in, out []byte, _ uint32) status {
	id := be.Uint32(in[0x1c:])
	if p.FlowCounters[id&0xffffff] == nil {
		return badResource
	}
	count := max(1, be.Uint16(in[0x1a:])) // of 30 bits
	for i := range uint32(count) {
		at := 0x10 + 16*int(i)
		if at+16 > min(p.outLen, len(out)) {
			break
		}
		c := p.FlowCounters[id&0xffffff+i]
		if c == nil || !p.owns(uidOf(in), classFlowCounter, id&0xffffff+i) {
			continue
		}
		be.PutUint64(out[at:], c.Packets)
		be.PutUint64(out[at+8:], c.Bytes)
		if in[0x18]>>7 != 0 {
			*c = tally{}
		}
	}
	return ok
}
