package connectx

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/rackless/rackless/rdma/roce"
)

// fastMask has mlx5_ib's fields of IB_WR_REG_MR (frwr_mkey_mask): neither domain nor queue.
const fastMask = umrLen | umrPage | umrStart | umrRInval | umrKey | 0xf<<17 | umrFree

// fastReg builds mlx5_ib's IB_WR_REG_MR. A list of more than 64 bytes is in memory at buf.
func (g *guest) fastReg(key uint32, list []uint64, buf, start, n uint64) testWQE {
	set := map[bits]uint64{mkcLr: 1, mkcLw: 1, mkcRr: 1, mkcRw: 1, mkcUmrEn: 1, mkcLen: n, mkcStartAddr: start,
		mkcLogPageSize: 12, mkcMkey70: uint64(key & 0xff), mkcQpn: anyQP, mkcEnRinval: 1}
	if len(list) <= 8 {
		w := umrWQE(key, fastMask, list, set)
		w.segs[0][0] |= umrIfFree
		return w
	}
	w := g.umrPiece(key, 0, list, buf, fastMask, set)
	w.segs[0][0] = umrIfFree
	return w
}

// localInv is like mlx5_ib's IB_WR_LOCAL_INV.
func localInv(key uint32) testWQE { return umrWQE(key, umrFree, nil, map[bits]uint64{mkcFree: 1}) }

// kernelPair returns queue pairs that may register memory, like users in the kernel.
func kernelPair(a, b *guest) (*testQP, *testQP) {
	qa, qb := pair(a, b, serviceRC, map[bits]uint64{qpcRetryCount: 7})
	for g, q := range map[*guest]*testQP{a: qa, b: qb} {
		g.p.lock()
		qpcFre.put(g.p.Queues[q.num].Ctx, 1)
		g.p.unlock()
	}
	return qa, qb
}

// A region of NVMe over RDMA, NFS over RDMA and SMC-R is registered with the message that tells the peer of it, revoked
// by the peer's answer or by the owner, and registered again under another key.
func TestFastRegistration(t *testing.T) {
	for _, c := range []struct {
		name  string
		mode  uint64
		pages int
	}{
		{"a list of pages", modeMTT, 4}, {"a long list of pages", modeMTT, 100},
		{"a list with gaps", modeKLM, 3}, {"a long list with gaps", modeKLM, 60},
	} {
		for _, direct := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, direct %v", c.name, direct), func(t *testing.T) {
				s, g := newLab(t, 2, NIC{}, nil)
				s.SetDirect(direct)
				client, server := kernelPair(g[0], g[1])
				n := uint64(c.pages) * pageSize
				mem, buf, far := g[0].alloc(n), g[0].alloc(n), g[1].alloc(n)
				dma, all := g[0].physicalKey(), g[1].anyKey(far, n)
				const start = 0x1_2345_6000
				var list []uint64
				for i := range uint64(c.pages) {
					at := mem + (uint64(c.pages)-1-i)*pageSize
					if c.mode == modeKLM {
						list = append(list, pageSize<<32|uint64(dma), at)
					} else {
						list = append(list, at|present)
					}
				}
				check := func(what string, q *testQP, want roce.Status) {
					t.Helper()
					if e := q.cq.wait(); statusOf(e) != want {
						t.Fatalf("%s ends with %#x, want %#x: %x", what, statusOf(e), want, e)
					}
				}
				base := g[0].freeKey(c.mode)
				for round := range uint32(3) {
					key := base | round
					server.recv(all, far, 64)
					client.recv(dma, buf, 64)
					client.send(g[0].fastReg(key, list, buf, start, n), testWQE{op: wqeSend, segs: [][]byte{
						dataSeg(buf, dma, 16)}})
					check("the registration", client, roce.OK)
					check("the request", client, roce.OK)
					check("the server's receive", server, roce.OK)
					fill(g[1].mem[far:far+n], uint64(round))
					server.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(start, key), dataSeg(far, all,
						uint32(n))}})
					check("the server's write", server, roce.OK)
					for i := range uint64(c.pages) {
						at := mem + (uint64(c.pages)-1-i)*pageSize
						if !bytes.Equal(g[0].mem[at:at+pageSize], g[1].mem[far+i*pageSize:][:pageSize]) {
							t.Fatalf("round %d: page %d has other bytes", round, i)
						}
					}
					if round == 1 {
						client.send(localInv(key))
						check("the invalidation", client, roce.OK)
					} else {
						server.send(testWQE{op: wqeSendInv, imm: key, segs: [][]byte{dataSeg(far, all, 16)}})
						check("the answer", server, roce.OK)
						if e := client.cq.wait(); e[63]>>4 != cqeSendInv || be.Uint32(e[36:]) != key {
							t.Fatalf("the client receives %x", e)
						}
					}
					g[0].p.lock()
					if k := g[0].p.Keys[key>>8]; !k.Free || k.Key != key || g[0].p.NPages != g[0].p.charged() {
						t.Fatalf("round %d: the key is %+v", round, k)
					}
					g[0].p.unlock()
				}
				server.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(start, base|2), dataSeg(far, all, 64)}})
				check("a write after that", server, roce.RemoteDenied)
			})
		}
	}
}

// A key in use is not registered again, and a wrong key fails the queue.
func TestFastRegistrationOfAWrongKey(t *testing.T) {
	for _, c := range []struct {
		name string
		want roce.Status
		wqe  func(g *guest, key uint32, list []uint64) testWQE
	}{
		{"a key in use", roce.MemoryOp, func(g *guest, key uint32, list []uint64) testWQE {
			return g.fastReg(key, list, 0, 0, pageSize)
		}},
		{"a free key that must not be", roce.MemoryOp, func(g *guest, _ uint32, list []uint64) testWQE {
			w := g.fastReg(g.freeKey(modeMTT), list, 0, 0, pageSize)
			w.segs[0][0] ^= umrIfFree | umrIfNotFree
			return w
		}},
		{"no key", roce.MemoryOp, func(g *guest, _ uint32, list []uint64) testWQE {
			return g.fastReg(0x777700, list, 0, 0, pageSize)
		}},
		{"a key of registered memory", roce.MemoryOp, func(g *guest, _ uint32, list []uint64) testWQE {
			return g.fastReg(g.anyKey(0, pageSize), list, 0, 0, pageSize)
		}},
		{"invalidation of no key", roce.MemoryOp, func(*guest, uint32, []uint64) testWQE { return localInv(0x777700) }},
		{"invalidation of a key of registered memory", roce.MemoryOp, func(g *guest, _ uint32, _ []uint64) testWQE {
			return localInv(g.anyKey(0, pageSize))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, g := newLab(t, 2, NIC{}, nil)
			q, _ := kernelPair(g[0], g[1])
			list := []uint64{g[0].alloc(pageSize) | present}
			key := g[0].freeKey(modeMTT)
			w := c.wqe(g[0], key, list)
			q.send(g[0].fastReg(key, list, 0, 0, pageSize), w, testWQE{op: wqeNop})
			for i, want := range []roce.Status{roce.OK, c.want, roce.Flushed} {
				if e := q.cq.wait(); statusOf(e) != want {
					t.Errorf("request %d ends with %#x, want %#x", i, statusOf(e), want)
				}
			}
			if k := g[0].p.Keys[key>>8]; k.Free || k.Len != pageSize {
				t.Errorf("the key of the first request is %+v", k)
			}
		})
	}
}

func TestAFlushedRegistrationChangesNothing(t *testing.T) {
	for _, direct := range []bool{true, false} {
		s, g := newLab(t, 2, NIC{}, nil)
		s.SetDirect(direct)
		q, _ := kernelPair(g[0], g[1])
		key := g[0].freeKey(modeMTT)
		at := g[0].alloc(pageSize)
		q.send(testWQE{op: wqeWrite, segs: [][]byte{remoteSeg(0, 0x777700), dataSeg(at, g[0].anyKey(at, 64), 64)}},
			testWQE{op: wqeNop}, withFence(g[0].fastReg(key, []uint64{at | present}, 0, 0, pageSize), fenceAll))
		for i, want := range []roce.Status{roce.RemoteDenied, roce.Flushed, roce.Flushed} {
			if e := q.cq.wait(); statusOf(e) != want {
				t.Errorf("request %d ends with %#x, want %#x", i, statusOf(e), want)
			}
		}
		if k := g[0].p.Keys[key>>8]; !k.Free {
			t.Errorf("direct %v: the key is %+v", direct, k)
		}
	}
}

func withFence(w testWQE, fence byte) testWQE {
	w.flags = flagComplete | fence<<5
	return w
}
