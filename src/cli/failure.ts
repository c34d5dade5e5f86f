import { KintsugiError } from '../common/errors.js';

/** A run that was begun and failed has exit 1. Bad input has exit 2. */
export class RunFailure extends KintsugiError {
  /** For an error that came after the run had begun. */
  static of(error: KintsugiError): RunFailure {
    return new RunFailure(error.code, error.message, { cause: error });
  }
}
