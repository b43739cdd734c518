import { cloneElement, isValidElement, type ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

interface FieldProps {
  label: string;
  hint?: string | undefined;
  /** The refusal of the value. Its field takes the focus. */
  fault?: string | undefined;
  children: ComponentChildren;
}

export function Field({ label, hint, fault, children }: FieldProps) {
  const whole = useRef<HTMLLabelElement>(null);
  useEffect(() => {
    const control = whole.current?.control;
    if (fault !== undefined && control instanceof HTMLElement) control.focus();
  }, [fault]);
  const isControl = fault !== undefined && isValidElement(children);
  return (
    <label class="field" ref={whole}>
      <span>{label}</span>
      {isControl ? cloneElement(children, { 'aria-invalid': 'true' }) : children}
      {fault !== undefined && (
        <small class="field-fault" role="alert">
          {fault}
        </small>
      )}
      {hint !== undefined && <small>{withCode(hint)}</small>}
    </label>
  );
}

/** The descriptions of the API have code between backticks. */
const withCode = (text: string): ComponentChildren =>
  text.split('`').map((part, place) => (place % 2 === 1 ? <code key={place}>{part}</code> : part));
