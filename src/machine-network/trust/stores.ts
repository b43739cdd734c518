/** Where distributions keep the authorities that a machine trusts. */
export const STORES = {
  /** In the order in which programs look for them. Several are links to one file. */
  bundles: [
    // Debian, Ubuntu, Alpine, Arch.
    '/etc/ssl/certs/ca-certificates.crt',
    // Fedora, RHEL.
    '/etc/pki/tls/certs/ca-bundle.crt',
    '/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem',
    // SUSE.
    '/etc/ssl/ca-bundle.pem',
    // Alpine, and the default of OpenSSL and LibreSSL.
    '/etc/ssl/cert.pem',
  ],
  /** From these the programs of distributions make their bundles again. */
  anchors: [
    { directory: '/usr/local/share/ca-certificates', file: 'sandkeep.crt' },
    { directory: '/etc/pki/ca-trust/source/anchors', file: 'sandkeep.pem' },
    { directory: '/etc/pki/trust/anchors', file: 'sandkeep.pem' },
    { directory: '/etc/ca-certificates/trust-source/anchors', file: 'sandkeep.pem' },
  ],
  /** OpenSSL finds a certificate here by the hash of its subject. */
  hashed: '/etc/ssl/certs',
} as const;
