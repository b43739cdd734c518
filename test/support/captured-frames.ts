/** Frames of the official clients 0.6.18 and the answers that they accept, captured on the wire. */

interface CapturedFrame {
  id: number;
  flags: number;
  type: string;
  payload: object;
  hex: string;
}

/** Clients send them. */
export const SENT: readonly CapturedFrame[] = [
  {
    id: 1,
    flags: 2,
    type: 'core.exec.request',
    payload: {
      cmd: 'cat',
      args: [],
      env: [],
      cwd: '/',
      user: null,
      tty: false,
      rows: 24,
      cols: 80,
      rlimits: [],
    },
    hex: '0000005d0000000102a3617607617471636f72652e657865632e726571756573746170583ca963636d646363617464617267738063656e768063637764612f6475736572f663747479f464726f7773181864636f6c73185067726c696d69747380',
  },
  {
    id: 1,
    flags: 2,
    type: 'core.exec.request',
    payload: {
      cmd: 'sh',
      args: [],
      env: ['TERM=xterm-256color'],
      cwd: '/',
      user: null,
      tty: true,
      rows: 30,
      cols: 100,
      rlimits: [],
    },
    hex: '000000700000000102a3617607617471636f72652e657865632e726571756573746170584fa963636d6462736864617267738063656e7681735445524d3d787465726d2d323536636f6c6f7263637764612f6475736572f663747479f564726f7773181e64636f6c73186467726c696d69747380',
  },
  {
    id: 1,
    flags: 2,
    type: 'core.exec.request',
    payload: {
      cmd: 'sh',
      args: ['-c', 'ulimit -n'],
      env: [],
      cwd: '/',
      user: null,
      tty: false,
      rows: 24,
      cols: 80,
      rlimits: [{ resource: 'nofile', soft: 100, hard: 200 }],
    },
    hex: '000000880000000102a3617607617471636f72652e657865632e7265717565737461705867a963636d64627368646172677382622d6369756c696d6974202d6e63656e768063637764612f6475736572f663747479f464726f7773181864636f6c73185067726c696d69747381a3687265736f75726365666e6f66696c6564736f66741864646861726418c8',
  },
  {
    id: 1,
    flags: 2,
    type: 'core.exec.request',
    payload: {
      cmd: '/bin/sh',
      args: [],
      env: ['TERM=xterm-256color'],
      cwd: '/',
      user: 'root',
      tty: true,
      rows: 30,
      cols: 100,
      rlimits: [],
    },
    hex: '000000790000000102a3617607617471636f72652e657865632e7265717565737461705858a963636d64672f62696e2f736864617267738063656e7681735445524d3d787465726d2d323536636f6c6f7263637764612f647573657264726f6f7463747479f564726f7773181e64636f6c73186467726c696d69747380',
  },
  {
    id: 1,
    flags: 0,
    type: 'core.exec.stdin',
    payload: { data: Buffer.from('\u0003') },
    hex: '000000260000000100a361760761746f636f72652e657865632e737464696e617048a164646174614103',
  },
  {
    id: 1,
    flags: 0,
    type: 'core.exec.stdin',
    payload: { data: Buffer.from('') },
    hex: '000000250000000100a361760761746f636f72652e657865632e737464696e617047a1646461746140',
  },
  {
    id: 1,
    flags: 0,
    type: 'core.exec.resize',
    payload: { rows: 40, cols: 120 },
    hex: '0000002e0000000100a3617607617470636f72652e657865632e726573697a6561704fa264726f7773182864636f6c731878',
  },
  {
    id: 1,
    flags: 0,
    type: 'core.exec.signal',
    payload: { signal: 9 },
    hex: '000000280000000100a3617607617470636f72652e657865632e7369676e616c617049a1667369676e616c09',
  },
  {
    id: 1,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { Stat: { path: '/nope', follow_symlink: false } } },
    hex: '000000450000000102a361760761746f636f72652e66732e7265717565737461705826a1626f70a16453746174a26470617468652f6e6f70656e666f6c6c6f775f73796d6c696e6bf4',
  },
  {
    id: 1,
    flags: 2,
    type: 'core.fs.request',
    payload: {
      op: {
        SetStat: {
          path: '/tmp/x',
          follow_symlink: true,
          attrs: { mode: 420, uid: null, gid: null, size: null, atime: null, mtime: null },
        },
      },
    },
    hex: '000000760000000102a361760761746f636f72652e66732e7265717565737461705857a1626f70a16753657453746174a36470617468662f746d702f786e666f6c6c6f775f73796d6c696e6bf5656174747273a6646d6f64651901a463756964f663676964f66473697a65f6656174696d65f6656d74696d65f6',
  },
  {
    id: 1,
    flags: 2,
    type: 'core.fs.request',
    payload: {
      op: {
        OpenFile: {
          path: '/tmp',
          options: {
            read: true,
            write: false,
            append: false,
            create: false,
            truncate: false,
            create_new: false,
            mode: null,
          },
        },
      },
    },
    hex: '0000007a0000000102a361760761746f636f72652e66732e726571756573746170585ba1626f70a1684f70656e46696c65a26470617468642f746d70676f7074696f6e73a76472656164f5657772697465f466617070656e64f466637265617465f4687472756e63617465f46a6372656174655f6e6577f4646d6f6465f6',
  },
  {
    id: 1,
    flags: 2,
    type: 'core.fs.request',
    payload: {
      op: {
        OpenFile: {
          path: '/tmp/x',
          options: {
            read: false,
            write: true,
            append: false,
            create: true,
            truncate: true,
            create_new: false,
            mode: null,
          },
        },
      },
    },
    hex: '0000007c0000000102a361760761746f636f72652e66732e726571756573746170585da1626f70a1684f70656e46696c65a26470617468662f746d702f78676f7074696f6e73a76472656164f4657772697465f566617070656e64f466637265617465f5687472756e63617465f56a6372656174655f6e6577f4646d6f6465f6',
  },
  {
    id: 2,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { Read: { handle: 1, offset: 0, len: null } } },
    hex: '0000003f0000000202a361760761746f636f72652e66732e7265717565737461705820a1626f70a16452656164a36668616e646c6501666f666673657400636c656ef6',
  },
  {
    id: 2,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { Write: { handle: 1, offset: 0, len: null } } },
    hex: '000000400000000202a361760761746f636f72652e66732e7265717565737461705821a1626f70a1655772697465a36668616e646c6501666f666673657400636c656ef6',
  },
  {
    id: 2,
    flags: 0,
    type: 'core.fs.data',
    payload: { data: Buffer.from('x') },
    hex: '000000230000000200a361760761746c636f72652e66732e64617461617048a164646174614178',
  },
  {
    id: 2,
    flags: 0,
    type: 'core.fs.data',
    payload: { data: Buffer.from('') },
    hex: '000000220000000200a361760761746c636f72652e66732e64617461617047a1646461746140',
  },
  {
    id: 3,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { CloseHandle: { handle: 1 } } },
    hex: '000000390000000302a361760761746f636f72652e66732e726571756573746170581aa1626f70a16b436c6f736548616e646c65a16668616e646c6501',
  },
  {
    id: 1,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { List: { path: '/tmp' } } },
    hex: '000000330000000102a361760761746f636f72652e66732e72657175657374617055a1626f70a1644c697374a16470617468642f746d70',
  },
  {
    id: 8,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { Mkdir: { path: '/tmp/sd', mode: null } } },
    hex: '0000003e0000000802a361760761746f636f72652e66732e726571756573746170581fa1626f70a1654d6b646972a26470617468672f746d702f7364646d6f6465f6',
  },
  {
    id: 14,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { Remove: { path: '/tmp/sd/t' } } },
    hex: '0000003b0000000e02a361760761746f636f72652e66732e726571756573746170581ca1626f70a16652656d6f7665a16470617468692f746d702f73642f74',
  },
  {
    id: 17,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { RemoveDir: { path: '/tmp', recursive: false } } },
    hex: '000000440000001102a361760761746f636f72652e66732e7265717565737461705825a1626f70a16952656d6f7665446972a26470617468642f746d7069726563757273697665f4',
  },
  {
    id: 1,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { Copy: { src: '/tmp/a.txt', dst: '/tmp/d/b.txt' } } },
    hex: '0000004a0000000102a361760761746f636f72652e66732e726571756573746170582ba1626f70a164436f7079a2637372636a2f746d702f612e747874636473746c2f746d702f642f622e747874',
  },
  {
    id: 9,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { Rename: { src: '/tmp/s.txt', dst: '/tmp/sd/t' } } },
    hex: '000000490000000902a361760761746f636f72652e66732e726571756573746170582aa1626f70a16652656e616d65a2637372636a2f746d702f732e74787463647374692f746d702f73642f74',
  },
  {
    id: 1,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { Symlink: { target: 'a', link_path: '/tmp/cpd/link' } } },
    hex: '0000004e0000000102a361760761746f636f72652e66732e726571756573746170582fa1626f70a16753796d6c696e6ba2667461726765746161696c696e6b5f706174686d2f746d702f6370642f6c696e6b',
  },
  {
    id: 13,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { ReadLink: { path: '/tmp/ln' } } },
    hex: '0000003b0000000d02a361760761746f636f72652e66732e726571756573746170581ca1626f70a168526561644c696e6ba16470617468672f746d702f6c6e',
  },
  {
    id: 10,
    flags: 2,
    type: 'core.fs.request',
    payload: { op: { RealPath: { path: '/tmp' } } },
    hex: '000000380000000a02a361760761746f636f72652e66732e7265717565737461705819a1626f70a1685265616c50617468a16470617468642f746d70',
  },
];

/** Clients accept them. */
export const ACCEPTED: readonly CapturedFrame[] = [
  {
    id: 1,
    flags: 0,
    type: 'core.exec.started',
    payload: { pid: 7991 },
    hex: '000000280000000100a3617607617471636f72652e657865632e73746172746564617048a163706964191f37',
  },
  {
    id: 1,
    flags: 0,
    type: 'core.exec.stdout',
    payload: { data: Buffer.from('\u0007') },
    hex: '000000270000000100a3617607617470636f72652e657865632e7374646f7574617048a164646174614107',
  },
  {
    id: 1,
    flags: 0,
    type: 'core.exec.stderr',
    payload: { data: Buffer.from('2\n') },
    hex: '000000280000000100a3617607617470636f72652e657865632e737464657272617049a1646461746142320a',
  },
  {
    id: 1,
    flags: 1,
    type: 'core.exec.exited',
    payload: { code: 3 },
    hex: '000000260000000101a3617607617470636f72652e657865632e657869746564617047a164636f646503',
  },
  {
    id: 2,
    flags: 0,
    type: 'core.fs.data',
    payload: { data: Buffer.from('a\n') },
    hex: '000000240000000200a361760761746c636f72652e66732e64617461617049a1646461746142610a',
  },
  {
    id: 2,
    flags: 1,
    type: 'core.fs.response',
    payload: { ok: true, error: null, data: null },
    hex: '000000310000000201a3617607617470636f72652e66732e726573706f6e7365617052a3626f6bf5656572726f72f66464617461f6',
  },
];

/** The id range and the first message of a server of version 0.6.18. */
export const GREETING =
  '0000000101ffffff' +
  '0000005b0000000000a361760761746a636f72652e72656164796170584' +
  '1a46c626f6f745f74696d655f6e73006c696e69745f74696d655f6e73006d72656164795f74696d655f6e73006d6167656e745f76657273696f6e66302e362e3138';
