import { describe, expect, test } from 'vitest';
import { describeHost, parseHosts } from '../../src/db/external/hosts.js';

function read(url: string): [string, string[]] {
  const { url: first, hosts } = parseHosts(url);
  return [first, hosts.map(describeHost)];
}

describe('a database URL', () => {
  test.each([
    ['postgres://u:p@one/db', 'postgres://u:p@one/db', ['one:5432']],
    ['postgresql://one:1/db?sslmode=disable', 'postgresql://one:1/db?sslmode=disable', ['one:1']],
    ['postgres://u@one:1,two:2/db', 'postgres://u@one:1/db', ['one:1', 'two:2']],
    ['postgres://u:a%2Cb@one,two:2/db', 'postgres://u:a%2Cb@one/db', ['one:5432', 'two:2']],
    ['postgres://one,two/db?target_session_attrs=read-write', 'postgres://one/db', ['one:5432', 'two:5432']],
    ['postgres://one/db?target_session_attrs=primary', 'postgres://one/db', ['one:5432']],
    [
      'postgres://u@one,two/db?sslmode=disable&target_session_attrs=primary',
      'postgres://u@one/db?sslmode=disable',
      ['one:5432', 'two:5432'],
    ],
    ['postgres://[::1]:1,[fe80::2]:2/db', 'postgres://[::1]:1/db', ['[::1]:1', '[fe80::2]:2']],
    ['postgres://u@/db?host=one,two&port=1,2', 'postgres://u@one:1/db', ['one:1', 'two:2']],
    ['postgres://u@/db?host=one,two&port=7', 'postgres://u@one:7/db', ['one:7', 'two:7']],
    ['postgres://u@/db?host=/run/pg', 'postgres://u@/db?host=/run/pg', ['/run/pg:5432']],
    [
      'postgres://u@/db?host=/run/a,/run/b&port=1,2',
      'postgres://u@/db?host=%2Frun%2Fa&port=1',
      ['/run/a:1', '/run/b:2'],
    ],
  ])('%s names its servers', (url, first, hosts) => {
    expect(read(url)).toEqual([first, hosts]);
  });

  test.each([
    ['one/db', /cannot be read/],
    ['mysql://u:secret@one/db', /cannot be read/],
    ['postgres://u:secret@one:port/db', /cannot be read/],
    ['postgres://u:secret@one:1,two:x/db', /cannot be read/],
    ['postgres://u:secret@/db?host=one,two,three&port=1,2', /3 hosts and 2 ports/],
    ['postgres://u:secret@one,two/db?target_session_attrs=any', /write read-write/],
    ['postgres://u:secret@one/db?target_session_attrs=standby', /needs the primary/],
  ])('%s is refused without a word of its password', (url, reason) => {
    expect(() => parseHosts(url)).toThrow(reason);
    try {
      parseHosts(url);
    } catch (error) {
      expect(String((error as Error).stack)).not.toContain('secret');
      expect((error as Error).cause).toBeUndefined();
    }
  });
});
