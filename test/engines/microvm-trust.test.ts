import { X509Certificate } from 'node:crypto';
import { rootCertificates } from 'node:tls';
import { expect, test } from 'vitest';
import { bootTrust } from '../../src/engines/microvm/boot/trust.js';
import { makeAuthority } from '../../src/gateway/intercept/certificate.js';
import { subjectHash } from '../../src/machine-network/trust/certificates.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { makeDisk } from '../support/microvm/disks.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { IMAGE, makeFolder, script, startRun } from '../support/microvm/runs.js';
import { GATED } from '../support/run-spec.js';

const BUNDLE = '/etc/ssl/certs/ca-certificates.crt';
const INTERCEPTED = { gated: { ...GATED, tls: { ...GATED.tls, enabled: true } } };
const [FIRST, SECOND] = [makeAuthority('of this test'), makeAuthority('of the next test')];

describeMicrovm('the authorities that a virtual machine trusts', () => {
  /** The output of a script in a machine whose files the patches make, and which trusts an authority. */
  async function outputOf(
    text: string,
    { own = FIRST.certificate, machine = [] as string[], disk = makeDisk(makeFolder()), ...spec },
  ): Promise<string> {
    const run = { ...INTERCEPTED, ...script(text), endsWithCommand: true, ...spec };
    const booted = await startRun(run, { disk, ...bootTrust({ own, machine }) }, IMAGE);
    expect(await booted.line('exit'), booted.output.stderr()).toBe('exit 0 0');
    await booted.ended;
    return booted.output.stdout();
  }
  const file = (path: string, content: string): RunSpec['patches'][number] => ({
    type: 'text',
    path,
    content,
    replace: false,
  });

  test('are in the store of its image, and those of an earlier start leave it', async () => {
    const disk = makeDisk(makeFolder());
    const roots = rootCertificates.slice(0, 3).join('\n');
    const show = `cat ${BUNDLE}; echo ====; readlink $SSL_CERT_FILE; readlink /etc/ssl/cert.pem
      cd /usr/local/share/ca-certificates; ls; cat sandkeep.crt
      cat /etc/ssl/certs/$(ls /etc/ssl/certs | grep '\\.0$' | tail -n 1); cat $NODE_EXTRA_CA_CERTS
      stat -c '%a %u' ${BUNDLE}; head -c 4 /.sandkeep/trust/all.jks | hexdump -e '4/1 "%02x"'; ls -A /etc/ssl/certs >&2`;
    const patches: RunSpec['patches'] = [
      file(BUNDLE, `# of Alpine\n${roots}`),
      { type: 'symlink', link: '/etc/ssl/cert.pem', target: 'certs/ca-certificates.crt', replace: false },
      { type: 'mkdir', path: '/usr/local/share/ca-certificates', mode: null },
    ];
    const certificate = FIRST.certificate.trim();
    const [bundle = '', files] = (await outputOf(show, { disk, patches })).split('====\n');
    expect(bundle.startsWith('# of Alpine\n')).toBe(true);
    expect(subjectsIn(bundle)).toHaveLength(4);
    expect(files?.split('\n').filter((line) => !certificate.includes(line))).toEqual([
      BUNDLE,
      'certs/ca-certificates.crt',
      'sandkeep.crt',
      '644 0',
      'feedfeed',
    ]);
    expect(files?.split(certificate)).toHaveLength(4);
    const again = await outputOf(`cat ${BUNDLE}; ls /etc/ssl/certs`, { disk, own: SECOND.certificate });
    expect(subjectsIn(again).filter((name) => name.includes('Sandkeep'))).toEqual([
      'O=Sandkeep\nCN=Sandkeep interception of the next test',
    ]);
    expect(subjectsIn(again)).toHaveLength(4);
    expect(again).toContain(`${subjectHash(SECOND.certificate)}.0`);
    expect(again).not.toContain('sandkeep-new');
  });

  test('are in a file of the service where the image has no store, or a volume hides it', async () => {
    const show = 'cat $SSL_CERT_FILE; echo ====; echo x 2>&1 >$SSL_CERT_FILE; ls /etc';
    const text = await outputOf(`${show} 2>&1 || true`, { user: 'ann' });
    const [bundle = '', others = ''] = text.split('====\n');
    expect(subjectsIn(bundle)).toHaveLength(rootCertificates.length + 1);
    expect(others).toMatch(/Read-only file system/);
    expect(others).not.toMatch(/ssl|pki/);
    const hidden = await outputOf('cat $SSL_CERT_FILE; ls /etc/ssl/certs', {
      machine: [rootCertificates[9]!],
      patches: [file(BUNDLE, rootCertificates[0]!)],
      mounts: [{ type: 'tmpfs', guest: '/etc/ssl/certs', size_mib: null }],
    });
    expect(new Set(subjectsIn(hidden)).size).toBe(rootCertificates.length + 1);
    expect(hidden).not.toContain('ca-certificates.crt');
  });

  const hostile: [what: string, script: string][] = [
    ['a pipe', `mkfifo ${BUNDLE}`],
    ['a device', `mknod ${BUNDLE} c 1 5`],
    ['a link to itself', `ln -s ca-certificates.crt ${BUNDLE}`],
    ['a link to a process', `ln -s /proc/1/environ ${BUNDLE}`],
    ['a directory', `mkdir ${BUNDLE}`],
    ['a file of 8 GiB', `truncate -s 8589934592 ${BUNDLE}`],
    ['the beginning of a certificate', `echo '-----BEGIN CERTIFICATE-----' >${BUNDLE}`],
    ['a directory in the place of a new file', `touch ${BUNDLE}; mkdir ${BUNDLE}.sandkeep-new`],
    ['directories as links to one another', 'rm -r /etc/ssl; ln -s /etc/ssl/certs /etc/ssl'],
    ['the files of the service', 'rm -r /etc/ssl/certs; ln -s /.sandkeep/trust /etc/ssl/certs'],
  ];
  test('are in the files of the service, whatever the sandbox puts at the paths of its store', async () => {
    const disk = makeDisk(makeFolder());
    const certificate = FIRST.certificate.trim();
    const [first] = hostile;
    await outputOf(`mkdir -p /etc/ssl/certs; ${first![1]}`, { disk });
    for (const [index, [what]] of hostile.entries()) {
      const next = hostile[index + 1]?.[1] ?? 'true';
      const text = await outputOf(
        `head -c 400000 "$CURL_CA_BUNDLE"; cat "$NODE_EXTRA_CA_CERTS"
         rm -rf /etc/ssl; mkdir -p /etc/ssl/certs; ${next}`,
        { disk },
      );
      expect(text.split(certificate), what).toHaveLength(3);
    }
  }, 900_000);
});

function subjectsIn(pem: string): string[] {
  return (pem.match(/-----BEGIN [^-]+-----[^-]+-----END [^-]+-----/g) ?? []).map(
    (text) => new X509Certificate(text).subject,
  );
}
