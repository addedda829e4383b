"""What is to be done next, and what holds it up. Pure: a look in, actions and gates out."""
