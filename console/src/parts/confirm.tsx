import { signal } from '@preact/signals';
import { Dialog } from './dialog';

interface Question {
  title: string;
  /** The names of the objects that go. */
  names: readonly string[];
  consequence: string;
  action: string;
  answer: (isConfirmed: boolean) => void;
}

const MOST_NAMES = 12;
const question = signal<Question | undefined>(undefined);

/** Asks before something goes. */
export function confirm(asked: Omit<Question, 'answer'>): Promise<boolean> {
  return new Promise((resolve) => {
    question.value = {
      ...asked,
      answer: (isConfirmed) => {
        question.value = undefined;
        resolve(isConfirmed);
      },
    };
  });
}

export function ConfirmHost() {
  const asked = question.value;
  if (asked === undefined) return null;
  return (
    <Dialog title={asked.title} close={() => asked.answer(false)}>
      <ul class="names">
        {asked.names.slice(0, MOST_NAMES).map((name) => (
          <li key={name}>{name}</li>
        ))}
        {asked.names.length > MOST_NAMES && <li>and {asked.names.length - MOST_NAMES} more</li>}
      </ul>
      <p>{asked.consequence}</p>
      <p class="actions">
        <button type="button" class="danger" onClick={() => asked.answer(true)}>
          {asked.action}
        </button>
        <button type="button" autofocus onClick={() => asked.answer(false)}>
          Cancel
        </button>
      </p>
    </Dialog>
  );
}
