import { VERSIONS } from './versions.js';

/** Programs that build a network with an SDK, and the network that the service must have stored for each. */
export interface NetworkProgram {
  title: string;
  client: 'node' | 'python';
  /** NAME stands for the name of the sandbox. */
  run: string;
  stored: { strict: boolean; [field: string]: unknown };
}

const DNS = {
  direction: 'egress',
  destination: { group: 'host' },
  action: 'allow',
  ports: [{ start: 53, end: 53 }],
};
const PUBLIC = rule('allow', { group: 'public' });
/** The policy that the clients send where a program has none. */
const DEFAULT_POLICY = {
  default_egress: 'deny',
  default_ingress: 'allow',
  rules: [{ ...DNS, protocols: ['udp', 'tcp'] }, PUBLIC],
};
const INJECTION = { headers: true, basic_auth: true, query_params: false, body: false };
const exact = (value: string) => ({ type: 'exact', value });
const wildcard = (value: string) => ({ type: 'wildcard', value });
const secret = (more: object) => ({
  policy: DEFAULT_POLICY,
  secrets: [
    {
      env_var: 'TOKEN',
      placeholder: '$MSB_TOKEN',
      allowed_hosts: [exact('api.example.com')],
      injection: INJECTION,
      on_violation: { type: 'block_and_log' },
      ...more,
    },
  ],
});

const node = (title: string, network: string, stored: object): NetworkProgram => ({
  title: `Node SDK ${VERSIONS.npm}: ${title}`,
  client: 'node',
  run: `const { NetworkPolicyBuilder, Rule, Destination, PortRange } = await import("microsandbox"); await Sandbox.builder("NAME").image("example:1")${network}.create()`,
  // This SDK sends false unless it is told otherwise.
  stored: { strict: false, ...stored },
});
const python = (title: string, network: string, stored: object): NetworkProgram => ({
  title: `Python SDK ${VERSIONS.pypi}: ${title}`,
  client: 'python',
  run: `import microsandbox.types as m; await Sandbox.create("NAME", image="example:1", ${network})`,
  stored: { strict: true, ...stored },
});

export const NETWORK_PROGRAMS: readonly NetworkProgram[] = [
  node(
    'a policy of objects, with limits',
    '.network((n) => n.policy({ defaultEgress: "deny", defaultIngress: "deny", rules: [Rule.allowDns(), { ...Rule.allowEgress(Destination.domain("api.example.com")), protocols: ["tcp"], ports: [PortRange.single(443)] }, Rule.denyEgress(Destination.domainSuffix("ads.example.com")), Rule.allowEgress(Destination.cidr("10.0.0.0/8"))] }).strict(false).maxConnections(10))',
    {
      max_connections: 10,
      policy: {
        default_egress: 'deny',
        default_ingress: 'deny',
        rules: [
          { ...DNS, protocols: ['udp', 'tcp'] },
          rule('allow', { domain: 'api.example.com' }, ['tcp'], 443),
          rule('deny', { domain_suffix: 'ads.example.com' }),
          rule('allow', { cidr: '10.0.0.0/8' }),
        ],
      },
    },
  ),
  node(
    'the builder of policies',
    '.network((n) => n.policyFromBuilder(new NetworkPolicyBuilder().defaultDeny().egress((r) => r.tcp().port(443).allowDomain("api.example.com").allowDomainSuffix("example.org"))).strict(true))',
    {
      strict: true,
      policy: {
        default_egress: 'deny',
        default_ingress: 'deny',
        rules: [
          rule('allow', { domain: 'api.example.com' }, ['tcp'], 443),
          rule('allow', { domain_suffix: 'example.org' }, ['tcp'], 443),
        ],
      },
    },
  ),
  node(
    'a secret with every place and pattern',
    '.secret((s) => s.env("TOKEN").value("sk-value").placeholder("sk-placeholder").allowHost("api.example.com").allowHostPattern("*.example.org").injectBasicAuth(false).injectQuery(true).injectBody(true))',
    secret({
      placeholder: 'sk-placeholder',
      allowed_hosts: [exact('api.example.com'), wildcard('*.example.org')],
      injection: { headers: true, basic_auth: false, query_params: true, body: true },
    }),
  ),
  node('a secret in short', '.secretEnv("TOKEN", "sk-value", "api.example.com")', secret({})),
  node(
    'a secret for any host',
    '.secret((s) => s.env("TOKEN").value("sk-value").allowAnyHostDangerous(true).requireTlsIdentity(false))',
    secret({ allowed_hosts: [{ type: 'any' }], require_tls_identity: false }),
  ),
  node(
    'what ends a sandbox',
    '.network((n) => n.secretEnv("TOKEN", "sk-value", "sk-placeholder", "api.example.com").onSecretViolation((v) => v.blockAndTerminate()))',
    secret({ placeholder: 'sk-placeholder', on_violation: { type: 'block_and_terminate' } }),
  ),
  node(
    'hosts that get the placeholder',
    '.secret((s) => s.env("TOKEN").value("sk-value").allowHost("api.example.com").onViolation((v) => v.passthroughHost("log.example.com").passthroughHostPattern("*.example.org")))',
    secret({
      on_violation: { type: 'passthrough', hosts: [exact('log.example.com'), wildcard('*.example.org')] },
    }),
  ),
  python(
    'a policy of rules, with limits',
    'network=m.Network(policy=m.NetworkPolicy(default_ingress=m.Action.DENY, rules=(*m.Rule.allow_dns(), m.Rule.allow(protocol=m.Protocol.TCP, port=443, destination=m.Destination.domain("api.example.com")), m.Rule.deny(destination=m.Destination.domain_suffix("ads.example.com")), m.Rule.allow(destination=m.Destination.cidr("10.0.0.0/8"), port="80-90", protocol=m.Protocol.TCP))), strict=False, max_tcp_connections=10, max_udp_connections=5)',
    {
      strict: false,
      max_connections: 10,
      max_udp_connections: 5,
      policy: {
        default_egress: 'deny',
        default_ingress: 'deny',
        rules: [
          { ...DNS, protocols: ['udp'] },
          { ...DNS, protocols: ['tcp'] },
          rule('allow', { domain: 'api.example.com' }, ['tcp'], 443),
          rule('deny', { domain_suffix: 'ads.example.com' }),
          rule('allow', { cidr: '10.0.0.0/8' }, ['tcp'], 80, 90),
        ],
      },
    },
  ),
  python(
    'denied domains',
    'network=m.Network(deny_domains=("bad.example.com",), deny_domain_suffixes=("ads.example.com",))',
    {
      policy: {
        default_egress: 'allow',
        default_ingress: 'allow',
        rules: [
          rule('deny', { domain: 'bad.example.com' }),
          rule('deny', { domain_suffix: 'ads.example.com' }),
        ],
      },
    },
  ),
  python(
    'a secret with every place and pattern',
    'secrets=[m.Secret.env("TOKEN", value="sk-value", allow=["api.example.com", "*.example.org"], placeholder="sk-placeholder", allow_placeholder_for=["log.example.com"], substitution=m.SecretSubstitution(header_fields=("authorization",), query=True, body=True))]',
    secret({
      placeholder: 'sk-placeholder',
      allowed_hosts: [exact('api.example.com'), wildcard('*.example.org')],
      injection: {
        headers: true,
        basic_auth: true,
        query_params: true,
        body: true,
        header_fields: ['authorization'],
      },
      on_violation: { type: 'block_and_log', passthrough_hosts: [exact('log.example.com')] },
    }),
  ),
  python(
    'a secret for any host',
    'secrets=[m.Secret.env("TOKEN", value="sk-value", allow=["*"], require_tls_identity=False)]',
    secret({ allowed_hosts: [{ type: 'any' }], require_tls_identity: false }),
  ),
];

function rule(action: string, destination: object, protocols: string[] = [], start?: number, end = start) {
  return {
    direction: 'egress',
    destination,
    action,
    ports: start === undefined ? [] : [{ start, end }],
    protocols,
  };
}
