import { integer, path, text } from '../options/types.js';

export const PREVIEW_OPTIONS = {
  previewDomain: {
    type: text(
      '<domain>',
      'a domain in lower case such as preview.example.com',
      /^(?=.{1,220}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$/,
    ),
    description:
      'domain of previews: each port of a sandbox has a host name below it; browsers find those of localhost on their own machine',
    default: 'localhost',
  },
  previewHost: {
    type: text('<host>', 'an address or a host name'),
    description: 'address of the listener of previews; none: no previews',
    default: '127.0.0.1',
  },
  previewPort: {
    type: integer('a port', 0, 65_535),
    description: 'port of the listener of previews; 0 takes a free one',
    unset: '8081, or a free one where it is taken',
  },
  previewTlsCert: {
    type: path('<file>'),
    description:
      'PEM file of the TLS certificate for the wildcard of --preview-domain, and those of its authorities; watched like --tls-cert',
    unset: 'HTTP without TLS',
  },
  previewTlsKey: {
    type: path('<file>'),
    description: 'PEM file of the key of this certificate, mode 0600, or 0640 and owned by root',
    unset: 'HTTP without TLS',
  },
  previewPublicPort: {
    type: integer('a port', 1, 65_535),
    description: 'port in the URLs of previews, where a reverse proxy has another than the listener',
    unset:
      'that of the listener; 443 for a domain other than localhost without a certificate, where a proxy ends TLS',
  },
} as const;
