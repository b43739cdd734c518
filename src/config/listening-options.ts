import { integer, onOff, path, text } from '../options/types.js';

export const LISTENING_OPTIONS = {
  host: {
    type: text('<host>', 'an address or a host name'),
    description: 'address to listen on; none: only the socket of --listen-unix',
    default: '127.0.0.1',
  },
  port: {
    type: integer('a port', 0, 65_535),
    description: 'port to listen on; 0 takes a free one',
    default: 8080,
  },
  listenUnix: {
    type: path('<path>'),
    description: 'Unix socket to listen on too, without TLS; only there with --host none',
    unset: 'none',
  },
  listenUnixMode: {
    type: text('<mode>', 'an octal mode such as 660', /^0?[0-7]{3}$/),
    description: 'mode of the Unix socket',
    default: '660',
  },
  tlsCert: {
    type: path('<file>'),
    description:
      'PEM file of the TLS certificate and those of its authorities; a changed file is served within seconds, or at SIGHUP',
    unset: 'HTTP without TLS',
  },
  tlsKey: {
    type: path('<file>'),
    description: 'PEM file of the key of this certificate, mode 0600, or 0640 and owned by root',
    unset: 'HTTP without TLS',
  },
  hstsDays: {
    type: integer('a number of days', 0, 36_500),
    description:
      'days for which browsers shall use only HTTPS for the host name, on each of its ports (HSTS); 0: no such header',
    default: 0,
    setting: true,
  },
  drainSeconds: {
    type: integer('a number of seconds', 0, 3_600),
    description:
      'how long requests are still served at SIGTERM while /readyz answers 503, so that load balancers turn away',
    default: 0,
  },
  metricsPort: {
    type: integer('a port', 0, 65_535),
    description: 'port of the metrics for Prometheus, at /metrics without a key; 0 takes a free one',
    unset: 'no metrics',
  },
  metricsHost: {
    type: text('<host>', 'an address or a host name'),
    description: 'address of the metrics',
    default: '127.0.0.1',
  },
  metricsByOrg: {
    type: onOff,
    description: 'add metrics of each organization, labelled with its slug',
    default: false,
  },
} as const;
