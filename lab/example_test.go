package lab_test

import (
	"errors"
	"fmt"

	"github.com/rackless/rackless/lab"
)

func ExampleParse() {
	l, err := lab.Parse("pair.yaml", []byte("name: pair\nnodes:\n  vm: {count: 2, nics: 2}\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(l.Name, l.Fabric.MTU, l.Fabric.RDMAPayload())
	for _, n := range l.Nodes {
		for _, nic := range n.NICs {
			fmt.Println(n.Name, n.Memory, nic.Name, nic.Addr)
		}
	}
	// Output:
	// pair 4200 4096
	// vm00 256MiB eth0 10.0.0.1/24
	// vm00 256MiB eth1 10.0.1.1/24
	// vm01 256MiB eth0 10.0.0.2/24
	// vm01 256MiB eth1 10.0.1.2/24
}

func ExampleError() {
	_, err := lab.Parse("pair.yaml", []byte("name: pair\nnodes:\n  vm00: {memory: 1MiB}\n"))
	fmt.Println(err)
	var fault *lab.Error
	if errors.As(err, &fault) {
		fmt.Println(fault.Line, fault.Column, fault.Key)
	}
	// Output:
	// pair.yaml:3:18: nodes.vm00.memory: out of range (have "1MiB", want 256MiB to 16TiB)
	//      1 | name: pair
	//      2 | nodes:
	// >    3 |   vm00: {memory: 1MiB}
	//        |                  ^
	// 3 18 nodes.vm00.memory
}

func ExampleDiff() {
	before, err := lab.Parse("pair.yaml", []byte("name: pair\nnodes: {vm00: {}, vm01: {}}\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	after, err := lab.Parse("pair.yaml", []byte("name: pair\nfabric: {mtu: 1500}\nnodes: {vm00: {memory: 1GiB}, "+
		"vm01: {}, vm02: {}}\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	changes := lab.Diff(before, after)
	for _, c := range changes {
		fmt.Println(c)
	}
	fmt.Println("as a whole:", lab.Dearest(changes))
	// Output:
	// lab: fabric.mtu 4200 -> 1500 (live)
	// vm00: memory 256MiB -> 1GiB (recreate)
	// vm02: added with cpus 1, memory 256MiB, image builtin, nics 1 (live)
	// as a whole: recreate
}

func ExampleParseBytes() {
	for _, text := range []string{"512M", "1024MiB", "1.5GiB"} {
		b, err := lab.ParseBytes(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(b)
	}
	// Output:
	// 512MiB
	// 1GiB
	// parse size "1.5GiB": want a whole number with a unit, such as 256MiB or 1GiB; write it as a whole number: 1536MiB
}
