import { useState } from 'preact/hooks';
import { Field } from '../parts/field';

export const FORMS = { commands: 'Commands', dockerfile: 'Dockerfile', file: 'File' } as const;
export type Form = keyof typeof FORMS;

const FIRST_DOCKERFILE = `FROM python:3.12
RUN pip install numpy
WORKDIR /srv
`;

interface ContentFieldsProps {
  form: Form;
  file: File | undefined;
  choose: (file: File | undefined) => void;
  fault: string | undefined;
}

/** The content of a build in one of its forms. Each form keeps its text while another is shown. */
export function ContentFields({ form, file, choose, fault }: ContentFieldsProps) {
  const [from, setFrom] = useState('python:3.12');
  const [commands, setCommands] = useState('');
  const [dockerfile, setDockerfile] = useState(FIRST_DOCKERFILE);
  if (form === 'commands') {
    return (
      <>
        <Field label="Image (required)" hint="Or a template, such as template:agent:1." fault={fault}>
          <input
            name="from"
            required
            spellcheck={false}
            value={from}
            onInput={({ currentTarget }) => setFrom(currentTarget.value)}
          />
        </Field>
        <Field label="Commands" hint="One a line. Each is a step of its own, run by /bin/sh.">
          <textarea
            name="commands"
            rows={6}
            spellcheck={false}
            placeholder="pip install numpy"
            value={commands}
            onInput={({ currentTarget }) => setCommands(currentTarget.value)}
          />
        </Field>
      </>
    );
  }
  if (form === 'dockerfile') {
    return (
      <Field label="Dockerfile (required)" hint="Without files: COPY needs an archive." fault={fault}>
        <textarea
          name="text"
          rows={12}
          required
          spellcheck={false}
          value={dockerfile}
          onInput={({ currentTarget }) => setDockerfile(currentTarget.value)}
        />
      </Field>
    );
  }
  return (
    <Field
      label="A Dockerfile, or an archive with one (required)"
      hint="Archives are tar, packed by gzip or not, of at most 64 MiB unpacked: tar -C ./agent -czf agent.tar.gz ."
      fault={fault}
    >
      <input
        name="file"
        type="file"
        required={file === undefined}
        onChange={({ currentTarget }) => choose(currentTarget.files?.[0])}
      />
    </Field>
  );
}

/** The body of the request. */
export function contentIn(form: Form, text: (name: string) => string, file: File | undefined): BodyInit {
  if (form === 'file') return file ?? '';
  if (form === 'dockerfile') return text('text');
  const commands = text('commands')
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  return JSON.stringify({ from: text('from'), commands });
}
