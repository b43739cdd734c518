import { describe, expect, it } from 'vitest';
import { newId } from '../../../src/lib/uuid.js';
import { PreviewHosts } from '../../../src/previews/host.js';

const SANDBOX = '0192d3a4-0000-7000-8000-00000000002a';
const local = new PreviewHosts('localhost', 'http', undefined);
local.listensAt(8081);
const hostOf = (hosts: PreviewHosts, port = 3000, sandboxId = SANDBOX) =>
  new URL(hosts.originOf({ port, sandboxId })).host;

describe('the host name of a preview', () => {
  it('holds the port and the whole id of the sandbox', () => {
    for (const sandboxId of [SANDBOX, newId(), `f${SANDBOX.slice(1)}`, '0'.repeat(8) + SANDBOX.slice(8)]) {
      const origin = local.originOf({ port: 65_535, sandboxId });
      expect(local.read(new URL(origin).host)).toEqual({ port: 65_535, sandboxId, origin });
    }
  });

  it('is a valid DNS name below the domain, with the port unless it is the usual one', () => {
    expect(local.originOf({ port: 3000, sandboxId: SANDBOX })).toMatch(
      /^http:\/\/3000-[0-9a-z]{25}\.localhost:8081$/,
    );
    const behindProxy = new PreviewHosts('preview.example.com', 'https', 443);
    expect(behindProxy.originOf({ port: 3000, sandboxId: SANDBOX })).toMatch(
      /^https:\/\/3000-[0-9a-z]{25}\.preview\.example\.com$/,
    );
  });

  it('stays the fixed one, whatever port the listener has', () => {
    const hosts = new PreviewHosts('preview.example.com', 'https', 8443);
    hosts.listensAt(8081);
    expect(hostOf(hosts)).toMatch(/:8443$/);
  });

  it('has one spelling', () => {
    const host = hostOf(local);
    const [name] = host.split(':');
    const others = [
      host.toUpperCase(),
      `${name}.:8081`,
      `${name}:8082`,
      `${name}:08081`,
      name!,
      `user@${host}`,
      ` ${host}`,
      `${host} `,
      `${host},${host}`,
      host.replace('3000-', '03000-'),
      host.replace('3000-', '0-'),
      host.replace('3000-', '65536-'),
      host.replace('3000-', '-'),
      host.replace('3000-', '3000--'),
      host.replace('3000-', '٣000-'),
      host.replace('3000-', '3000-0'),
      `evil.${host}`,
      `${host}.evil.example`,
      host.replace('.localhost', '.localhost.evil.example'),
      host.replace('.localhost', '.locaLhost'),
      'localhost:8081',
      '127.0.0.1:8081',
      '[::1]:8081',
      '',
    ];
    expect(others.filter((other) => local.read(other) !== undefined)).toEqual([]);
    expect(local.read(undefined)).toBeUndefined();
  });

  it('stands for no id beyond 128 bits', () => {
    expect(local.read(`80-${'z'.repeat(25)}.localhost:8081`)).toBeUndefined();
  });

  it('is unknown until the listener has a port', () => {
    const early = new PreviewHosts('localhost', 'http', undefined);
    expect(early.read(hostOf(local))).toBeUndefined();
  });
});
