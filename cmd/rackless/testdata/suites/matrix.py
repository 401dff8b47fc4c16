"""The tests that run.py runs: what they are called, what their two programs are, and how long they may take."""
from collections import namedtuple

# ready says how the server listens: at a TCP port, at one of the connection manager ("cm"), to a group, or for raw
# packets ("raw"). wants is a pattern that the client prints if it has done its work. endless is for servers that end
# only when they are ended, tty for programs that are to believe that somebody types.
Test = namedtuple('Test', 'name server client ready limit wants endless tty', defaults=(180, '', False, False))

DEVICE, GID = 'mlx5_0', '3'
ROW = r'^ *\d+ +\d+ +[0-9.]+'  # of perftest's tables

# Modules of tests for cards of other makers and other hardware, which skip everything.
OTHER_CARDS = ('test_cuda_dmabuf', 'test_efa_srd', 'test_efadv', 'test_mlx5_cuda_umem')
MODULE_LIMIT = 400  # seconds without a line; a test has 180 and, if it fails, 180 more
LONG = {'test_mr': 5, 'test_qp': 4, 'test_qpex': 4, 'test_rdmacm': 4, 'test_odp': 3, 'test_device': 2}


def perftest(peer, macs):
    """perftest: each program over each kind of queue pair that it has, and each of its options once."""
    tests = []
    programs = {'write': ('RC', 'UC', 'XRC', 'DC'), 'read': ('RC', 'XRC', 'DC'),
                'send': ('RC', 'UC', 'UD', 'XRC', 'DC'), 'atomic': ('RC', 'XRC', 'DC')}

    def add(program, options, ready=18515, common=f'-d {DEVICE} -F'):
        size = '' if 'atomic' in program or '-a' in options.split() else ' -s 1024'
        count = '' if '-D' in options or '-n' in options.split() else ' -n 20'
        if not {'-R', '-x'} & set(options.split()):
            common += ' -x ' + GID
        argv = f'{program} {common}{size}{count} {options}'.split()
        if '-R' in options.split() or '-z' in options.split():
            ready = 'cm'
        tests.append(Test(f'{program} {options}'.strip(), argv, argv + [peer], ready, wants=ROW))

    for operation, kinds in programs.items():
        for kind in kinds:
            extra = ('', '-b', '-q 2', '-R') if kind in ('RC', 'UC', 'UD') else ('', '-b')
            if kind == 'UC':
                extra = ('', '-b')  # the connection manager has none
            for more in extra:
                add(f'ib_{operation}_bw', f'-c {kind} {more}'.strip())
            add(f'ib_{operation}_lat', f'-c {kind}')
            if kind in ('RC', 'UD'):
                add(f'ib_{operation}_lat', f'-c {kind} -R')
            if operation != 'write' and kind in ('RC', 'UD'):
                add(f'ib_{operation}_bw', f'-c {kind} -e')
                add(f'ib_{operation}_lat', f'-c {kind} -e')
    add('ib_atomic_bw', '-A CMP_AND_SWAP')
    add('ib_atomic_lat', '-A CMP_AND_SWAP')
    for program in 'ib_write_bw', 'ib_read_bw', 'ib_send_bw':
        add(program, '-a -n 5')
    add('ib_write_lat', '-a -n 5')
    add('ib_send_lat', '-c UD -a -n 5')
    for options in ('-I 64', '-l 4', '-m 4096', '-t 1', '-Q 1', '-D 1', '-S 3', '--use_old_post_send',
                    '--mr_per_qp -q 2', '--write_with_imm', '--report-both -b', '--report_gbits', '--cpu_util',
                    '-Q 1 --perform_warm_up', '--no_lock', '--odp', '--use-null-mr',
                    *(f'--rate_limit=10 --rate_units=g --rate_limit_type={how}' for how in ('SW', 'HW')),
                    '--flow_label=7', '--tclass=106', '-R -T 106', '-z', '-u 18', '--retry_count=3',
                    '--reversed'):
        add('ib_write_bw', options)
    for options in ('--use-srq -q 2', '-r 32', '--recv_post_list=4', '-e --use-srq', '-I 64', '-c UD --use-srq',
                    '-R --use-srq', '-e -X 0'):
        add('ib_send_bw', options)
    add('ib_send_bw', '-c UD -g -x 1')  # its group is one of IPv6
    add('ib_read_bw', '-o 4')
    add('ib_read_lat', '-o 1')
    add('ib_read_bw', '--odp')
    add('ib_send_bw', '--odp')
    add('ib_write_lat', '-I 0')
    add('ib_write_lat', '-U')
    add('ib_write_lat', '-H')
    add('ib_write_lat', '--write_with_imm')
    client, server = macs
    # Both sides name the server's address first.
    for program in 'raw_ethernet_bw', 'raw_ethernet_lat':
        ports = '-k 4000 -K 4001'
        for name, frame in (('', ''), (' UDP', f'-J 10.0.0.2 -j 10.0.0.1 {ports}'),
                            (' TCP', f'-J 10.0.0.2 -j 10.0.0.1 {ports} --tcp')):
            one = f'{program} -d {DEVICE} -F -s 512 -n 20'
            tests.append(Test(program + name, f'{one} -Z -B {server} -E {client} {frame}'.split(),
                              f'{one} -P -B {client} -E {server} {frame}'.split(), 'raw', 120, ROW))
    return tests


def programs(peer, macs):
    """The example programs of rdma-core: pingpongs of libibverbs, and those of librdmacm."""
    tests = []
    kinds = {'rc': ('', '-e', '-c', '-t', '-j', '-N', '-o', '-m 4096', '-s 100000'), 'uc': ('', '-e'), 'ud': ('', '-e'),
             'srq': ('', '-e', '-o'), 'xsrq': ('', '-e')}
    for kind, more in kinds.items():
        for options in more:
            name = f'ibv_{kind}_pingpong {options}'.strip()
            argv = f'{name} -d {DEVICE} -g {GID} -n 20'.split()
            tests.append(Test(name, argv, argv + [peer], 18515, wants='iters in|Mbit/sec|success'))

    def cm(name, server, client, ready='cm', **more):
        tests.append(Test(name, server.split(), client.split(), ready, **more))

    address = '10.0.0.2'
    cm('rping', f'rping -s -a {address} -C 10', f'rping -c -a {address} -C 10 -v', wants='ping data')
    cm('rping -V -S 65000', f'rping -s -a {address} -C 5 -V -S 65000', f'rping -c -a {address} -C 5 -V -S 65000')
    cm('rping -q', f'rping -s -a {address} -C 10 -q', f'rping -c -a {address} -C 10 -q')
    cm('rping -P', f'rping -s -a {address} -P', f'rping -c -a {address} -C 10', endless=True)
    cm('ucmatose', 'ucmatose', f'ucmatose -s {address}', wants='return status 0')
    cm('ucmatose -c 4', 'ucmatose -c 4', f'ucmatose -c 4 -s {address}', wants='return status 0')
    cm('ucmatose -t 106', 'ucmatose -t 106', f'ucmatose -t 106 -s {address}', wants='return status 0')
    cm('ucmatose -m', 'ucmatose -m', f'ucmatose -m -s {address}', wants='return status 0')
    cm('ucmatose -a 12', 'ucmatose -a 12', f'ucmatose -a 12 -s {address}', wants='return status 0')
    cm('udaddy', 'udaddy', f'udaddy -s {address}', wants='return status 0')
    cm('udaddy -c 4', 'udaddy -c 4', f'udaddy -c 4 -s {address}', wants='return status 0')
    cm('rdma_server', 'rdma_server', f'rdma_client -s {address}', wants='rdma_client: end 0')
    cm('rdma_xserver -c r', 'rdma_xserver -c r', f'rdma_xclient -s {address} -c r', wants='end 0')
    cm('rdma_xserver -c x', 'rdma_xserver -c x', f'rdma_xclient -s {address} -c x', wants='end 0')
    cm('mckey', 'mckey -m 239.1.1.1 -b 10.0.0.2', 'mckey -m 239.1.1.1 -b 10.0.0.1 -s', '239.1.1.1',
       wants='return status 0')
    cm('mckey -o', 'mckey -m 239.1.1.2 -b 10.0.0.2', 'mckey -m 239.1.1.2 -b 10.0.0.1 -s -o', '239.1.1.2',
       wants='return status 0')
    cm('mckey -l', 'mckey -m 239.1.1.3 -b 10.0.0.2', 'mckey -m 239.1.1.3 -b 10.0.0.1 -s -l', '239.1.1.3',
       wants='return status 0')
    small = '-S 4096 -I 5 -C 5'
    for options in ('', '-T b', '-T a', '-T n', '-T r'):
        cm(f'rstream {options}'.strip(), f'rstream {small} {options}', f'rstream {small} {options} -s {address}',
           wants=r'xfers|4k')
    for options in ('', '-T b'):
        cm(f'riostream {options}'.strip(), f'riostream {small} {options}', f'riostream {small} {options} -s {address}',
           wants=r'xfers|4k')
    cm('udpong', 'udpong', f'udpong -S 512 -C 20 -s {address}', endless=True)
    cm('rcopy', 'rcopy', f'rcopy /etc/services {address}:/tmp/rcopy', endless=True)
    cm('cmtime -c 4', f'cmtime -c 4 -b {address}', f'cmtime -c 4 -s {address}', endless=True)
    return tests


def ucx(peer, macs):
    """ucx_perftest: the transports of verbs and of mlx5 by themselves, and UCP over them."""
    tests = []

    def add(name, options, environment=()):
        argv = ['env', f'UCX_NET_DEVICES={DEVICE}:1', *environment, 'ucx_perftest', *options.split()]
        argv += ['-n', '50', '-w', '10']
        # Debian's program calls MPI unless it believes that somebody types.
        tests.append(Test(name, argv, argv + ['10.0.0.2'], 13337, wants='^Final: ', tty=True))

    # Each program takes seconds to start on an emulated CPU: these are one test for each way that data go.
    for transport in 'rc_verbs', 'rc_mlx5', 'ud_verbs', 'ud_mlx5', 'dc_mlx5':
        kinds = [('am_lat', 'short', 8), ('am_bw', 'zcopy', 64)]
        if not transport.startswith('ud'):
            kinds += [('put_bw', 'zcopy', 4096), ('fadd', '', 8)]
        for kind, how, size in kinds:
            name = f'-x {transport} -t {kind}' + (f' -D {how}' if how else '')
            add(name, f'-d {DEVICE}:1 {name} -s {size}')
    for transports in 'rc', 'rc_v,ud_v', 'ud', 'all':
        for kind, size in ('tag_lat', 8), ('tag_bw', 65536), ('ucp_put_bw', 4096):
            add(f'UCX_TLS={transports} -t {kind} -s {size}', f'-t {kind} -s {size}', [f'UCX_TLS={transports}'])
    return tests


SUITES = {'pyverbs': None, 'perftest': perftest, 'rdma-core programs': programs, 'ucx': ucx}
