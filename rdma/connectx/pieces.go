package connectx

import "github.com/rackless/rackless/rdma/roce"

// Keys of other keys: lists of pieces, which may repeat by strides. Those of parts of one size are in paging.go.

// readPieces reads the list of a key of other keys.
func (p *Port) readPieces(k *mkey, count int, list []byte) status {
	switch {
	case count > len(list)/16:
		return badParam
	case 2*count > k.maxPages() || !p.charge(2*count):
		return limit
	}
	k.Pages = make([]uint64, 2*count)
	for i := range k.Pages {
		k.Pages[i] = be.Uint64(list[8*i:])
	}
	return ok
}

// piece appends memory of a key in a list of keys. It needs the local right of the access, and must not be a list
// itself, or a guest could create a circle.
func (p *Port) piece(out []seg, check bool, key, pd uint32, va, n uint64, a roce.Access) ([]seg, roce.Fault) {
	if k := p.Keys[key>>8]; k == nil || k.Mode == modeKLM || k.Mode == modeKSM {
		return out, roce.FaultKey
	}
	return p.find(out, check, key, pd, va, n, localRight(a))
}

// pieces appends memory behind a key of mode KLM.
func (p *Port) pieces(out []seg, check bool, k *mkey, va, n uint64, a roce.Access) ([]seg, roce.Fault) {
	if k.strided() {
		return p.strides(out, check, k, va, n, a)
	}
	o := va - k.Start
	for i := 0; n > 0 && i+1 < len(k.Pages); i += 2 {
		size, key := k.Pages[i]>>32, uint32(k.Pages[i])
		if o >= size {
			o -= size
			continue
		}
		l := min(n, size-o)
		var f roce.Fault
		if out, f = p.piece(out, check, key, k.PD, k.Pages[i+1]+o, l, a); f != 0 {
			return out, f
		}
		o, va, n = 0, va+l, n-l
	}
	if n > 0 {
		return out, roce.FaultRange
	}
	return out, 0
}

// repeated, in place of the first key of a list, says that the rest repeats (struct mlx5_wqe_umr_repeat_block_seg).
const repeated = 0x400

func (k *mkey) strided() bool { return len(k.Pages) >= 4 && uint32(k.Pages[0]) == repeated }

// strides appends memory behind a list that repeats: at each turn, its pieces have moved by their strides. An access
// looks at as many pieces at most as two of the longest lists have.
func (p *Port) strides(out []seg, check bool, k *mkey, va, n uint64, a roce.Access) ([]seg, roce.Fault) {
	turn, turns, count := k.Pages[0]>>32, k.Pages[1]>>32, int(k.Pages[1]&0xffff)
	if turn == 0 || 2+2*count > len(k.Pages) {
		return out, roce.FaultRange
	}
	at := (va - k.Start) / turn
	o := (va - k.Start) % turn
	for looked := 0; at < turns; at++ {
		for i := 2; i < 2+2*count; i += 2 {
			stride, size, key := k.Pages[i]>>48, k.Pages[i]>>32&0xffff, uint32(k.Pages[i])
			if looked++; looked > 2*maxPieces {
				return out, roce.FaultRange
			}
			if o >= size {
				o -= size
				continue
			}
			l := min(n, size-o)
			var f roce.Fault
			out, f = p.piece(out, check, key, k.PD, k.Pages[i+1]+at*stride+o, l, a)
			if n -= l; f != 0 || n == 0 {
				return out, f
			}
			o = 0
		}
		if count == 0 || o > 0 { // the turn is longer than its pieces
			break
		}
	}
	return out, roce.FaultRange
}
