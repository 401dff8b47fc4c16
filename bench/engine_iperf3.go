package bench

import (
	"strconv"
)

var iperf3Engines = []Engine{{
	Name: "iperf3", Tool: toolIperf3, About: "TCP throughput from client to server, without RDMA", Suite: SuiteTCP,
	Program: "iperf3", Package: "iperf3", metrics: []string{MetricThroughput, MetricRetransmits},
	versionCommand: []string{"iperf3", "--version"}, plugin: iperf3{},
}}

type iperf3 struct{ noSetup }

// server ends after one test (-1), so that no port stays open when the measurement is over.
func (iperf3) server(_ Endpoint, o Options) []string {
	return []string{"iperf3", "-s", "-1", "-p", strconv.Itoa(o.Port)}
}

// client asks for JSON: the text rounds rates to three digits.
func (iperf3) client(_, server Endpoint, o Options) []string {
	return []string{"iperf3", "-c", server.Addr.String(), "-p", strconv.Itoa(o.Port), "-t", strconv.Itoa(o.seconds()),
		"--json"}
}

func (iperf3) parse(out Output, _ Options) ([]Figure, error) {
	res, err := ParseIperf3(out.Stdout)
	if err != nil {
		return nil, err
	}
	return res.Figures(), nil
}
