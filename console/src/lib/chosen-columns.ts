import { storedRecord } from './stored-record';

interface Choosable {
  title: string;
  /** Shown only when it is chosen. */
  isExtra?: boolean;
}

/** By `table column`: whether the user shows or hides it. Without an entry the column decides. */
const choices = storedRecord('sandkeep.columns', (value): value is boolean => typeof value === 'boolean');

const nameOf = (table: string, { title }: Choosable) => `${table} ${title}`;

export function isShown(table: string, column: Choosable): boolean {
  return choices.value[nameOf(table, column)] ?? column.isExtra !== true;
}

export function showColumn(table: string, column: Choosable, shown: boolean): void {
  choices.value = { ...choices.value, [nameOf(table, column)]: shown };
}
