package roce

// Congestion are the parameters of DCQCN, under the names of debugfs cc_params and with an adapter's defaults.
// Times are microseconds, rates Mbit/s.
type Congestion struct {
	// priorities, a bit each, on which CNPs are sent, and rates follow them and packets are ECN
	// capable
	Notify, React uint8

	ClampTargetRate         bool   // rp_clamp_tgt_rate: a CNP sets the target rate to the current one, always
	ClampTargetRateAfterInc bool   // rp_clamp_tgt_rate_ati: ... if the timer has raised the rate since the last one
	TimeReset               uint32 // rp_time_reset: between increases by the timer
	ByteReset               uint32 // rp_byte_reset: bytes between increases by the byte counter
	Threshold               uint32 // rp_threshold: increases of fast recovery
	AIRate, HAIRate         uint32 // rp_ai_rate, rp_hai_rate: steps of additive and hyper increase
	MaxRate                 uint32 // rp_max_rate; 0: the port's
	MinDecFac               uint32 // rp_min_dec_fac: a CNP leaves at least so many percent of the rate
	MinRate                 uint32 // rp_min_rate
	RateToSetOnFirstCNP     uint32 // rp_rate_to_set_on_first_cnp; 0: none
	DCETCPG                 uint32 // rp_dce_tcp_g: weight of the old alpha, of 1024
	DCETCPRTT               uint32 // rp_dce_tcp_rtt: between decreases of alpha
	RateReduceMonitorPeriod uint32 // rp_rate_reduce_monitor_period: between two cuts
	InitialAlpha            uint32 // rp_initial_alpha_value, of 1023
	GD                      uint32 // rp_gd: a CNP cuts by alpha >> GD

	MinTimeBetweenCNPs uint32 // np_min_time_between_cnps, of a flow
	CNPDSCP            uint8  // np_cnp_dscp
	CNPPrio            uint8  // np_cnp_prio
}

// DefaultCongestion is what an adapter starts with.
func DefaultCongestion() Congestion {
	return Congestion{
		Notify: 0xff, React: 0xff, ClampTargetRateAfterInc: true, TimeReset: 300, ByteReset: 32767, Threshold: 1,
		AIRate:  5,
		HAIRate: 50, MinDecFac: 50, MinRate: 1, DCETCPG: 1019, DCETCPRTT: 1, RateReduceMonitorPeriod: 4,
		InitialAlpha: 1023, GD: 11, MinTimeBetweenCNPs: 4, CNPDSCP: 48, CNPPrio: 6,
	}
}
