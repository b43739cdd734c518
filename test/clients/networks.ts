import { clientRefuses, msb, node, only, python, serviceRefuses, works, type Session } from './row.js';
import { VERSIONS } from './versions.js';

/**
 * The rows of networks: options that clients send, and those that they refuse themselves. The programs in
 * network-programs.ts compare the networks that the service stores.
 */

const refused = (operation: string, option: string, prefix: string) =>
  clientRefuses(
    `${prefix}${operation} is not supported by this backend: the ${option} option is not accepted here`,
  );
const byCli = (option: string) => refused('Sandbox::create', option, 'error: ');
const byNode = (option: string) => refused('Sandbox::create', option, 'UnsupportedError: ');
const byPython = (option: string) => refused('sandbox.create()', option, 'UnsupportedError: ');
const PORTS = 'network ports / custom DNS / host-CA trust';
const INLINE = clientRefuses(/^error: inline secret values/);
const FROM_VARIABLE = serviceRefuses(
  /^error: invalid config: POST \/v1\/sandboxes: a secret cannot come from an environment variable/,
);

const create = (name: string, options: string, expected = works()) =>
  only('simulated', msb(`create sandkeep-test:busybox --name ${name} ${options}`, expected));
const builds = (network: string, expected = works()) =>
  only(
    'simulated',
    node(`await Sandbox.builder("web").image("sandkeep-test:busybox")${network}.create()`, expected),
  );
const asks = (network: string, expected = works()) =>
  only(
    'simulated',
    python(
      `import microsandbox.types as m; await Sandbox.create("web", image="sandkeep-test:busybox", ${network})`,
      expected,
    ),
  );

export const NETWORKS: readonly Session[] = [
  {
    title: 'msb: networks',
    rows: [
      create('none', '--net none'),
      create('all', '--net all'),
      create('profiles', '--net public,private'),
      create('domain', '--net-rule allow@api.example.com:tcp:443 --net-default deny'),
      create('suffix', '--net-rule allow@suffix=example.com,deny@*.ads.example.com'),
      create('addresses', '--net-rule allow@10.0.0.0/8:tcp:80-90 --net-default-egress deny'),
      create('published', '--net-rule allow:ingress@any --net-default-ingress deny'),
      create('rule', '--no-net --net-rule allow@public'),
      create('limit', '--max-connections 10'),
      create('web', '--secret TOKEN@*.example.com', FROM_VARIABLE),
      create('web', '--secret TOKEN=value@api.example.com', INLINE),
      create('web', '--dns-nameserver 9.9.9.9', byCli(PORTS)),
      create('web', '--trust-host-cas', byCli(PORTS)),
      create('web', '--tls-intercept', byCli('network.tls')),
      create('web', '--net-ipv4-pool 10.0.0.0/16', byCli('network.interface')),
      create('web', '--net-egress-bandwidth 1M', byCli('network.rate_limiter')),
    ],
  },
  {
    title: 'Node SDK: networks that it refuses',
    rows: [
      builds('.network((n) => n.dns((d) => d.nameservers(["9.9.9.9"])))', byNode(PORTS)),
      builds('.network((n) => n.trustHostCAs(true))', byNode(PORTS)),
      builds('.network((n) => n.port(8080, 80))', byNode(PORTS)),
      builds('.network((n) => n.tls((t) => t.bypass("*.example.com")))', byNode('network.tls')),
      builds('.network((n) => n.interface((i) => i.mtu(1400)))', byNode('network.interface')),
    ],
  },
  {
    title: `Python SDK ${VERSIONS.pypi}: networks that it refuses`,
    rows: [
      asks('network=m.Network(dns=m.DnsConfig(nameservers=("9.9.9.9",)))', byPython(PORTS)),
      asks('network=m.Network(ports={8080: 80})', byPython(PORTS)),
      asks('network=m.Network(tls=m.TlsConfig(bypass=("*.example.com",)))', byPython('network.tls')),
      asks('network=m.Network(ipv4_pool="10.0.0.0/16")', byPython('network.interface')),
      asks(
        'network=m.Network(max_inbound_tcp_connections=5)',
        byPython('network.max_inbound_tcp_connections'),
      ),
      asks(
        'secrets=[m.Secret.env("TOKEN", value="v", allow=["api.example.com"], violation_action=m.ViolationAction.BLOCK)]',
        clientRefuses('TypeError: expected ViolationAction, got str'),
      ),
    ],
  },
];
