package simulate

// pauseTime returns how long a pause of the most quanta lasts on a link.
func pauseTime(rate float64) int64 { return int64(quanta * 512 * 1e9 / rate) }

// checkStop stops the sender of a priority if its bytes have reached the threshold, or the headroom.
func (p *port) checkStop(prio uint8) {
	s, e := p.sw, &p.in[prio]
	over := e.over(s.cfg.reserve())
	if p.stopped>>prio&1 != 0 || e.spare == 0 && (over == 0 || over < s.threshold(p.alpha)) {
		return
	}
	if p.stopped == 0 {
		p.stoppedAt = s.net.now
		p.because = s.longest(prio)
	}
	p.stopped |= 1 << prio
	s.net.watchPauses(p)
	p.pauses++
	s.net.stats.Pauses++
	p.sendPause(1<<prio, 1<<prio)
	if !p.renewing {
		p.renewing = true
		s.net.add(s.net.now+pauseTime(p.out.rate)/2, renewal, p.index)
	}
}

// checkGo lets the sender of a priority go on if its bytes are below the threshold by Resume.
func (p *port) checkGo(prio uint8) {
	s, e := p.sw, &p.in[prio]
	over := e.over(s.cfg.reserve())
	if e.spare > 0 || over > 0 && over+int64(s.cfg.Resume) > s.threshold(p.alpha) {
		return
	}
	p.stopped &^= 1 << prio
	if p.stopped == 0 {
		p.resumed()
	}
	s.net.stats.Resumes++
	p.sendPause(1<<prio, 0)
}

// renew repeats the pauses that hold, because they expire.
func (p *port) renew() {
	if p.stopped == 0 {
		p.renewing = false
		return
	}
	p.sendPause(p.stopped, p.stopped)
	p.sw.net.add(p.sw.net.now+pauseTime(p.out.rate)/2, renewal, p.index)
}

// sendPause sends a frame of MAC control ahead of all waiting packets.
func (p *port) sendPause(change, stop uint8) {
	n := p.sw.net
	if p.out.down {
		return
	}
	k := n.get()
	k.pauseFrame(change, stop)
	p.control.push(k)
	p.send()
}

// obey stops or resumes the priorities that a frame of MAC control names.
func (p *port) obey(k *packet) {
	n := p.sw.net
	for prio := range priorities {
		if k.frame[17]>>prio&1 == 0 || !p.sw.cfg.lossless(uint8(prio)) {
			continue
		}
		q := be.Uint16(k.frame[18+2*prio:])
		p.until[prio] = n.now + int64(float64(q)*512e9/p.out.rate)
		if q != 0 {
			p.paused |= 1 << prio
		} else {
			p.paused &^= 1 << prio
		}
	}
	n.put(k)
	p.send()
}

// expire ends the pauses whose time is up. Senders of pauses repeat them, so this only matters if they stop.
func (p *port) expire() {
	for prio := range priorities {
		if p.paused>>prio&1 != 0 && p.until[prio] <= p.sw.net.now {
			p.paused &^= 1 << prio
		}
	}
}
