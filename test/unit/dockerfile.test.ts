import { expect, test } from 'vitest';
import { DockerfileError } from '../../src/templates/dockerfile/error.js';
import { MOST_DOCKERFILE_BYTES, parseDockerfile } from '../../src/templates/dockerfile/parse.js';

const parts = (text: string) =>
  parseDockerfile(text).instructions.map((one) => {
    const { text: _, ...part } = one;
    return part;
  });

function refusal(text: string): [line: number, message: string] {
  try {
    parseDockerfile(text);
  } catch (error) {
    if (error instanceof DockerfileError) return [error.line, error.message];
    throw error;
  }
  throw new Error('it was not refused');
}

test('reads each instruction with its line', () => {
  const text = `# a comment
ARG VERSION=3.12
FROM python:$VERSION AS base

env A=1 B="two words" C=$A
ENV LEGACY some value
RUN echo one \\
    # a comment between
    && echo two
RUN ["echo", "a b"]
COPY --chown=app:app --chmod=755 a b /dst/
ADD ["a file", "/dst"]
WORKDIR /work
USER app
SHELL ["/bin/bash", "-c"]
CMD run me
ENTRYPOINT ["/entry"]
LABEL team=ml
EXPOSE 80 443/tcp
ARG LATE
`;
  expect(parts(text)).toEqual([
    { line: 2, type: 'arg', args: [{ name: 'VERSION', value: '3.12' }] },
    { line: 3, type: 'from', image: 'python:$VERSION', name: 'base' },
    {
      line: 5,
      type: 'env',
      pairs: [
        { key: 'A', value: '1' },
        { key: 'B', value: '"two words"' },
        { key: 'C', value: '$A' },
      ],
    },
    { line: 6, type: 'env', pairs: [{ key: 'LEGACY', value: 'some value' }] },
    { line: 7, type: 'run', form: { script: 'echo one     && echo two' } },
    { line: 10, type: 'run', form: { words: ['echo', 'a b'] } },
    {
      line: 11,
      type: 'copy',
      keyword: 'COPY',
      from: null,
      sources: ['a', 'b'],
      target: '/dst/',
      owner: 'app:app',
      mode: 0o755,
    },
    {
      line: 12,
      type: 'copy',
      keyword: 'ADD',
      from: null,
      sources: ['a file'],
      target: '/dst',
      owner: null,
      mode: null,
    },
    { line: 13, type: 'workdir', path: '/work' },
    { line: 14, type: 'user', user: 'app' },
    { line: 15, type: 'shell', words: ['/bin/bash', '-c'] },
    { line: 16, type: 'cmd', form: { script: 'run me' } },
    { line: 17, type: 'entrypoint', form: { words: ['/entry'] } },
    { line: 18, type: 'label', pairs: [{ key: 'team', value: 'ml' }] },
    { line: 19, type: 'expose', ports: ['80', '443/tcp'] },
    { line: 20, type: 'arg', args: [{ name: 'LATE', value: null }] },
  ]);
});

test('reads heredocs of RUN, carriage returns and another escape character', () => {
  expect(parts('FROM a\r\nRUN echo a \\\r\n  b\r\n')[1]).toEqual({
    line: 2,
    type: 'run',
    form: { script: 'echo a   b' },
  });
  const text = `# escape=\`
FROM a
RUN <<EOF
echo "first"
echo $HOME \\
  more
EOF
RUN echo a \`
 b
RUN cat > /f <<'END'
RUN is text
END
CMD x
`;
  expect(parts(text).slice(1)).toEqual([
    { line: 3, type: 'run', form: { script: 'echo "first"\necho $HOME \\\n  more\n' } },
    { line: 8, type: 'run', form: { script: 'echo a  b' } },
    { line: 10, type: 'run', form: { script: "cat > /f <<'END'\nRUN is text\nEND" } },
    { line: 13, type: 'cmd', form: { script: 'x' } },
  ]);
});

test.each([
  ['', 1, 'there is no FROM'],
  ['RUN a\nFROM b', 1, 'FROM comes first'],
  ['FROM a\n\nHEALTHCHECK NONE', 3, 'HEALTHCHECK is not supported'],
  ['FROM a\nVOLUME /data', 2, 'VOLUME is not supported'],
  ['FROM a\nONBUILD RUN b', 2, 'ONBUILD is not supported'],
  ['FROM a\nSTOPSIGNAL 9', 2, 'STOPSIGNAL is not supported'],
  ['FROM a\nWHAT b', 2, 'WHAT is not supported'],
  ['FROM --platform=linux/arm64 a', 1, '--platform of FROM is not supported'],
  ['FROM a b', 1, 'FROM has an image'],
  ['FROM a\nRUN', 2, 'RUN has no arguments'],
  ['FROM a\nRUN --mount=type=cache,target=/x b', 2, '--mount of RUN is not supported'],
  ['FROM a\nRUN <<EOF\n#!/bin/python\nEOF', 2, 'a heredoc with "#!"'],
  ['FROM a\nCOPY a', 2, 'a source and a destination'],
  ['FROM a\nCOPY --from= /a /b', 2, '--from names a stage'],
  ['FROM a\nCOPY --from=$B /a /b', 2, '--from has no variables'],
  ['FROM a\nADD --from=b /a /b', 2, '--from of ADD is not supported'],
  ['FROM a\nCOPY --chmod=u+x a b', 2, '--chmod is an octal number'],
  ['FROM a\nCOPY <<EOF /b\nx\nEOF', 2, 'a heredoc of COPY'],
  ['FROM a\nADD https://a/b /c', 2, 'ADD of an address'],
  ['FROM a\nADD a.tar.gz /c', 2, 'ADD of an archive'],
  ['FROM a\nENV A', 2, 'ENV is a list'],
  ['FROM a\nENV MSB_A=b', 2, 'no name for ENV'],
  ['FROM a\nARG 1=2', 2, 'no name for ARG'],
  ['FROM a\nSHELL /bin/sh', 2, 'SHELL is a list of words'],
  ['FROM a\nUSER a b', 2, 'USER has one argument'],
  ['FROM a\nCMD ["\\u0000"]', 2, 'U+0000'],
  ['FROM a\nRUN b\0', 1, 'NUL'],
  [`FROM a\n${'RUN b\n'.repeat(300)}`, 201, 'at most 200 instructions'],
  [`FROM a\nRUN ${'x'.repeat(MOST_DOCKERFILE_BYTES)}`, 1, 'bytes'],
  [`FROM a\nRUN ${'<<A '.repeat(60)}`, 1, '"<<" more than'],
])('refuses %j by its line', (text, line, message) => {
  const [at, words] = refusal(text);
  expect([at, words]).toEqual([line, expect.stringContaining(message)]);
});
